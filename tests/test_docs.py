"""What the documents say of the tree is so: links, paths, modules, targets, options; and they keep their form."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import onnx
import pytest
import typer

import collage
from collage.cli.main import app
from collage.errors import UnsupportedOperatorError

_ROOT = Path(__file__).resolve().parents[1]
_FOLDERS = ("docs/*.md", "benchmarks/*/README.md")
_NAMES = (
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md"),
    *(p.relative_to(_ROOT).as_posix() for pattern in _FOLDERS for p in sorted(_ROOT.glob(pattern))),
)
_PACKAGES = ("collage", "searchers", "estimators", "benchmarks")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FILE = re.compile(r"[\w./-]+\.(?:py|cc|h|cuh|md|sh|toml)")
_FOLDER = re.compile(rf"(?:{'|'.join(_PACKAGES)}|tests|docs)(?:/[\w-]+)+/?")
_DOTTED = re.compile(rf"(?<![\w./-])(?:{'|'.join(_PACKAGES)})(?:\.[A-Za-z_]\w*)+")
#: Entry-point groups, which read like modules and are none.
_NO_MODULES = ("collage.searchers", "collage.estimators", "collage.engines")


def read(name: str) -> str:
    return (_ROOT / name).read_text(encoding="utf-8")


def lines_of(text: str) -> Iterator[tuple[str, bool]]:
    """Each line, and whether it is code: fenced, or indented after a blank line."""
    fenced, indented, before = False, False, ""
    for line in text.splitlines():
        fence = line.startswith("```")
        fenced ^= fence
        if line.strip():
            indented = line.startswith("    ") and (indented or not before.strip())
        yield line, fenced or fence or indented
        before = line


def spans_of(text: str) -> list[str]:
    """What stands between backticks."""
    prose = "\n".join("" if code else line for line, code in lines_of(text))
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose)]


def code_of(text: str) -> str:
    """What stands in code blocks and between backticks, one piece a line."""
    return "\n".join([*(line for line, code in lines_of(text) if code), *spans_of(text)])


@pytest.fixture(scope="module")
def files() -> list[str]:
    """All files of the tree, as paths from its root with a slash before them."""
    folders = (*_PACKAGES, "tests", "docs", ".ci")
    below = (p for folder in folders for p in (_ROOT / folder).rglob("*") if p.is_file())
    return [f"/{p.relative_to(_ROOT)}" for p in (*below, *_ROOT.glob("*.*"))]


def test_the_readme_is_short() -> None:
    assert len(read("README.md").split()) <= 1200


@pytest.mark.parametrize("name", _NAMES)
def test_lines_are_wrapped_at_100_columns(name: str) -> None:
    prose = [line for line, code in lines_of(read(name)) if not code and not line.lstrip().startswith("|")]
    assert [line for line in prose if len(_LINK.sub("]", line)) > 100] == []


@pytest.mark.parametrize("name", _NAMES)
def test_tables_have_at_most_five_columns(name: str) -> None:
    rows = [line for line, code in lines_of(read(name)) if not code and line.startswith("|")]
    assert [row for row in rows if row.replace(r"\|", "").count("|") > 6] == []


@pytest.mark.parametrize("name", _NAMES)
def test_links_lead_somewhere(name: str) -> None:
    for target in _LINK.findall(read(name)):
        if target.startswith("https://"):
            continue
        path, _, heading = target.partition("#")
        linked = ((_ROOT / name).parent / path).resolve() if path else _ROOT / name
        assert linked.is_file(), target
        titles = re.findall(r"^#+ (.*)$", linked.read_text(encoding="utf-8"), re.MULTILINE) if heading else []
        assert not heading or heading in [anchor(title) for title in titles], target


def anchor(title: str) -> str:
    """The anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


@pytest.mark.parametrize("name", _NAMES)
def test_files_and_folders_exist(name: str, files: list[str]) -> None:
    spans = [span for span in spans_of(read(name)) if "NAME" not in span]
    named = [span for span in spans if _FILE.fullmatch(span)]
    assert [path for path in named if not any(file.endswith(f"/{path}") for file in files)] == []
    assert [span for span in spans if _FOLDER.fullmatch(span) and not (_ROOT / span).exists()] == []


@pytest.mark.parametrize("name", _NAMES)
def test_modules_and_what_is_named_in_them_exist(name: str) -> None:
    for dotted in sorted(set(_DOTTED.findall(code_of(read(name))))):
        assert dotted in _NO_MODULES or resolves(dotted), dotted
    for run in re.findall(r"python3? -m (\w+\.[\w.]+)", code_of(read(name))):
        module = importlib.util.find_spec(run)
        package = module is not None and module.submodule_search_locations is not None
        assert importlib.util.find_spec(f"{run}.__main__" if package else run) is not None, run


def resolves(dotted: str) -> bool:
    """Whether this is a module, or an attribute of one."""
    owner, _, attribute = dotted.rpartition(".")
    if not owner:
        return importlib.util.find_spec(dotted) is not None
    if not resolves(owner):
        return False
    module = importlib.util.find_spec(owner)
    package = module is not None and module.submodule_search_locations is not None
    if package and importlib.util.find_spec(dotted) is not None:
        return True
    return hasattr(importlib.import_module(owner), attribute)


@pytest.mark.parametrize("name", _NAMES)
def test_make_has_the_targets(name: str) -> None:
    targets = re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE)
    assert set(re.findall(r"^\s*make ([a-z-]+)", code_of(read(name)), re.MULTILINE)) <= set(targets)


def commands() -> dict[str, set[str]]:
    """The options of every command, by its words, as "records export"."""
    top = getattr(typer.main.get_command(app), "commands")  # noqa: B009
    below = {f"{name} {word}": sub for name, c in top.items() for word, sub in getattr(c, "commands", {}).items()}
    return {
        name: {option for p in command.params for option in (*p.opts, *p.secondary_opts)}
        for name, command in {**top, **below}.items()
    }


@pytest.mark.parametrize("name", _NAMES)
def test_the_command_line_has_the_commands_and_options(name: str) -> None:
    known = commands()
    for line in code_of(read(name)).splitlines():
        words = line.split("#")[0].split()
        if len(words) < 2 or words[0] != "collage" or not words[1].isalpha():
            continue
        options = known.get(" ".join(words[1:3]), known.get(words[1]))
        assert options is not None, line
        assert {word for word in words if word.startswith("-")} <= options, line


def test_the_options_of_the_readme_exist() -> None:
    named = {span.split()[0] for span in spans_of(read("README.md")) if span.startswith("--")}
    assert len(named) > 3 and named <= {"--help"}.union(*commands().values())


def test_every_package_is_on_the_page_of_the_architecture() -> None:
    packages = [f"collage/{p.parent.name}" for p in (_ROOT / "collage").glob("*/__init__.py")]
    assert [p for p in packages if f"`{p}`" not in read("docs/ARCHITECTURE.md")] == []


def test_operators_that_the_readme_calls_unsupported_are_refused() -> None:
    limits = read("README.md").partition("## Limits")[2]
    named = re.findall(r"`([A-Z]\w+)`", limits)
    assert len(named) > 3
    for operator in named:
        node = onnx.helper.make_node(operator, ["x"], ["y"], name="the_node")
        value = [onnx.helper.make_tensor_value_info(v, onnx.TensorProto.FLOAT, [1]) for v in "xy"]
        graph = onnx.helper.make_graph([node], "graph", value[:1], value[1:])
        with pytest.raises(UnsupportedOperatorError, match=f"{operator}.*the_node"):
            collage.load(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]))


@pytest.mark.long
def test_the_python_examples_of_the_readme_run(tmp_path: Path) -> None:
    """On a network of two operators, in two processes: one that tunes, and one that loads what it exported."""
    tensor = partial(onnx.helper.make_tensor_value_info, elem_type=onnx.TensorProto.FLOAT, shape=[4, 4])
    nodes = [onnx.helper.make_node("MatMul", ["x", "x"], ["y"]), onnx.helper.make_node("Relu", ["y"], ["z"])]
    graph = onnx.helper.make_graph(nodes, "graph", [tensor("x")], [tensor("z")])
    opset = onnx.helper.make_opsetid("", 17)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=9), tmp_path / "resnet50.onnx")
    tune, deploy = re.findall(r"^```python\n(.*?)^```$", read("README.md"), re.DOTALL | re.MULTILINE)
    deploy = f"import numpy as np\nimage = np.ones((4, 4), 'float32')\n{deploy}\nassert (probabilities == 4).all()"
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for source in (tune, deploy):
        done = subprocess.run(
            [sys.executable, "-c", source], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500
        )
        assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "plan.json").is_file()


_SECTION = re.compile(r"^(?:Parameters|Attributes|Raises)\n-+\n(.*?)(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)
_OLD_ENTRY = re.compile(r"^[\w*`][\w*`., ]*: \S")


@pytest.mark.parametrize("package", _PACKAGES)
def test_docstrings_have_the_form_that_numpydoc_parses(package: str) -> None:
    """A name on a line of its own, and its description indented below."""
    wrong = []
    for path in (_ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                lines = "\n".join(_SECTION.findall(ast.get_docstring(node) or "")).splitlines()
                wrong += [f"{path.relative_to(_ROOT)}: {line}" for line in lines if _OLD_ENTRY.match(line)]
    assert wrong == []
