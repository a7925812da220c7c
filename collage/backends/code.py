"""A digest of the code that builds a backend's candidates: part of every record's key (invariant 6).

What a candidate costs depends on our schedule rules, exporters and engines as much as on the libraries behind them.
When that code changes, old records are missed, never wrongly hit.

Which code that is follows from the imports: the modules of the backend's class and of its engine, what they import in
turn (`_BUILDING`; what is only searched or measured with builds nothing), the C++ sources that these name, and the
headers that those include. The digest is over what the files say: their top-level statements, docstrings, comments and
imports aside. So neither a file that is moved, renamed, split or joined changes it, nor prose; any other edit does.

A change that builds the same nevertheless, such as a function that got another name, is declared in
`equivalent_code.json`, after `python -m benchmarks.snapshot` has shown it. Digests of one list are equivalent: records
of one are found under the others (`equivalent_configurations`), and train one model (`equivalent_defaults`).
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collage.backends.base import Backend

#: The parts of Collage that candidates are built with; interfaces and the identity of the machine build nothing.
_BUILDING = ("collage.backends", "collage.frontend", "collage.runtime", "collage.compile.rewrite")
_NOT_BUILDING = (
    "collage.backends.base",
    "collage.backends.code",
    "collage.backends.lowering",
    "collage.runtime.device_info",
    "collage.runtime.engine",
    "collage.runtime.engines",
)
#: How the functions of partitions are made, for every backend.
_REWRITE = "collage.compile.rewrite"
_NATIVE = (".cc", ".cu", ".cuh", ".h", ".hpp", ".cpp")
_INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"].*$', re.MULTILINE)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
#: Engines of other packages include our headers.
_OUR_HEADERS = Path(__file__).parents[1] / "runtime"
_EQUIVALENT = Path(__file__).with_name("equivalent_code.json")


def configuration_of(backend: Backend) -> dict[str, Any]:
    """All that changes what a backend builds besides the version of its library: its settings, and our code."""
    return {"code": code_of(type(backend), backend.engine_name), **backend.configuration()}


def equivalent_configurations(backend: Backend) -> list[dict[str, Any]]:
    """The configurations under which the same was built by earlier code, the current one left out."""
    now = configuration_of(backend)
    return [{**now, "code": code} for code in equivalent_code(backend.name, now["code"]) if code != now["code"]]


def equivalent_code(backend: str, code: str) -> list[str]:
    """Digests of code that builds the same for a backend, oldest first, this one included."""
    return next((known for known in _equivalences().get(backend, _NONE).code if code in known), [code])


def equivalent_defaults(backend: str) -> list[list[dict[str, Any]]]:
    """The configurations, with default settings, that are declared equivalent for a backend of this name."""
    declared = _equivalences().get(backend, _NONE)
    return [[{"code": code, **declared.settings} for code in known] for known in declared.code]


@dataclass(frozen=True)
class _Equivalent:
    """Of one backend: its default settings, and lists of equivalent digests of code."""

    settings: Mapping[str, Any]
    code: Sequence[list[str]]


_NONE = _Equivalent({}, [])


@cache
def _equivalences() -> Mapping[str, _Equivalent]:
    return {name: _Equivalent(**declared) for name, declared in json.loads(_EQUIVALENT.read_text()).items()}


@cache
def code_of(backend: type[Backend], engine: str) -> str:
    """Sixteen hexadecimal digits over the code that builds the candidates of a class of backends."""
    from collage.runtime.engines import modules_of

    classes = [cls for cls in backend.__mro__ if cls.__module__ not in ("builtins", "abc")]
    typed_in = [cls for cls in classes if _file_of(cls.__module__) is None]
    roots = [cls.__module__ for cls in classes if cls not in typed_in]
    return digest_of_code([*roots, *modules_of(engine), _REWRITE], [_typed(cls) for cls in typed_in])


def digest_of_code(roots: Iterable[str], more: Iterable[str] = ()) -> str:
    """The digest over modules and all that they are built with (see above), and over further statements."""
    statements = list(more)
    for path in closure(roots):
        statements.extend(_said(path))
    return hashlib.sha256("\0".join(sorted(statements)).encode()).hexdigest()[:16]


def closure(roots: Iterable[str]) -> list[Path]:
    """The source files behind some modules: of the packages of these, and of the parts of Collage that build.

    Raises
    ------
    FileNotFoundError
        A root has no source file.
    """
    waiting = list(dict.fromkeys(roots))
    packages = {name.partition(".")[0] for name in waiting} - {"collage"}
    seen: dict[str, Path] = {}
    named: dict[tuple[Path, str], None] = {}  # by the folder of the module that names it
    while waiting:
        name = waiting.pop()
        if name in seen or not _belongs(name, packages):
            continue
        path = _file_of(name)
        if path is None:
            raise FileNotFoundError(f"no source file of module {name}")
        seen[name] = path
        imported, sources = _mentioned(name, path)
        waiting.extend(imported)
        named.update(((path.parent, source), None) for source in sources)
    folders = {path.parent for path in seen.values()}
    native = (source for folder, name in named for source in _sources(folder, name, folders))
    return sorted({*seen.values(), *_included(native)})


def _sources(folder: Path, name: str, others: Iterable[Path]) -> list[Path]:
    """The C++ source that a module of a folder names: beside it, else wherever other modules have one."""
    if (folder / name).is_file():
        return [folder / name]
    return [p for other in others for p in (other / name, *other.glob(f"*/{name}")) if p.is_file()]


def _belongs(name: str, packages: set[str]) -> bool:
    if name in _NOT_BUILDING:
        return False
    return name.partition(".")[0] in packages or any(name == p or name.startswith(f"{p}.") for p in _BUILDING)


def _typed(cls: type) -> str:
    """A class without a file, typed into an interpreter: its functions, compiled."""
    functions = (f for f in vars(cls).values() if isinstance(f, FunctionType))
    return repr([(f.__name__, f.__code__.co_code, f.__code__.co_names, f.__code__.co_consts) for f in functions])


def _file_of(name: str) -> Path | None:
    loaded = getattr(sys.modules.get(name), "__file__", None)
    if loaded is not None:
        return Path(loaded)
    top, _, rest = name.partition(".")
    spec = None if top == "__main__" else importlib.util.find_spec(top)
    if spec is None or spec.origin is None:
        return None
    if not rest:
        return Path(spec.origin)
    path = Path(spec.origin).parent.joinpath(*rest.split("."))
    return next((p for p in (path.with_suffix(".py"), path / "__init__.py") if p.is_file()), None)


@cache
def _mentioned(name: str, path: Path) -> tuple[Sequence[str], Sequence[str]]:
    """The modules that a module imports, and the C++ sources that it names; backends have most modules in common."""
    tree = ast.parse(path.read_text())
    texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    sources = [text for text in texts if isinstance(text, str) and text.endswith(_NATIVE)]
    return list(dict.fromkeys(_imported(tree, name, path))), sources


def _imported(tree: ast.Module, name: str, path: Path) -> Iterator[str]:
    """The modules that a module imports, at its top or in its functions, but for those that only annotations need."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for statement in _executed(tree):
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            base = statement.module or ""
            if statement.level:
                above = package.split(".")[: len(package.split(".")) - statement.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            for alias in statement.names:
                whole = f"{base}.{alias.name}"
                yield whole if base.partition(".")[0] == name.partition(".")[0] and _file_of(whole) else base


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if _for_types(child):
            continue
        yield child
        yield from _executed(child)


def _included(sources: Iterable[Path]) -> list[Path]:
    found: dict[Path, None] = {}
    waiting = list(sources)
    while waiting:
        path = waiting.pop().resolve()
        if path in found:
            continue
        found[path] = None
        for _, name in _INCLUDE.findall(path.read_text()):
            near = (folder / name for folder in (path.parent, path.parent.parent, _OUR_HEADERS))
            waiting.extend(p for p in near if p.is_file())
    return list(found)


@cache
def _said(path: Path) -> tuple[str, ...]:
    """The statements of a file; C++ is one."""
    if path.suffix in _NATIVE:
        return (" ".join(_COMMENT.sub(" ", _INCLUDE.sub("", path.read_text())).split()),)
    tree = ast.parse(path.read_text())
    modules = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if (node.module or "").startswith("collage") and _file_of(f"{node.module}.{alias.name}")
    }
    return tuple(ast.dump(statement) for statement in _WithoutProse(modules).visit(tree).body)


class _WithoutProse(ast.NodeTransformer):
    """Takes out imports, docstrings and what only annotations need; all imported modules get one name."""

    def __init__(self, modules: set[str]) -> None:
        self._modules = modules

    def visit_Import(self, node: ast.Import) -> None:
        return None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        return None

    def visit_If(self, node: ast.If) -> ast.AST | None:
        return None if _for_types(node) else self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name("module", node.ctx) if node.id in self._modules else node


def _for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
