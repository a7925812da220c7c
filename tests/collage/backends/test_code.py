"""Records are keyed by the code that builds what they measured: all of it, and nothing else."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from collage import plugins
from collage.backends import code
from collage.backends.code import closure, code_of, configuration_of, digest_of_code, equivalent_code
from collage.cost.cost import Cost
from collage.records import Record, RecordDatabase
from collage.records.key import digest_of
from collage.runtime.engines import modules_of

NAMES = ("tvm", "openvino", "onnxruntime", "onednn", "winograd", "tvm-cuda", "cublas", "cudnn", "cutlass")
SOURCES = {
    "kernel.py": '"""A kernel."""\n\nfrom {package}.tiles import tile\n\n\ndef kernel(x):\n    return tile(x)\n',
    "tiles.py": "def tile(x):\n    return x * 2\n\n\ndef unused():\n    pass\n",
}


@pytest.fixture
def package(tmp_path, monkeypatch):  # type: ignore[no-untyped-def]
    """Makes packages of two modules, and gives the digest of the first."""
    monkeypatch.syspath_prepend(str(tmp_path))
    made: list[str] = []

    def make(sources: dict[str, str]) -> str:
        name = f"package{len(made)}"
        made.append(name)
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
        for file, text in sources.items():
            (tmp_path / name / file).write_text(text.replace("{package}", name))
        return digest_of_code([f"{name}.{next(iter(sources)).removesuffix('.py')}"])

    return make


def test_a_file_that_is_moved_renamed_or_joined_changes_nothing(package) -> None:  # type: ignore[no-untyped-def]
    before = package(SOURCES)
    renamed = {
        "other.py": SOURCES["kernel.py"].replace("tiles", "tiling"),
        "tiling.py": SOURCES["tiles.py"],
    }
    joined = {"one.py": SOURCES["tiles.py"] + "\n\ndef kernel(x):\n    return tile(x)\n"}
    assert package(renamed) == before and package(joined) == before


def test_prose_changes_nothing(package) -> None:  # type: ignore[no-untyped-def]
    told = SOURCES["kernel.py"].replace("A kernel.", "A better word.").replace("    return", "    # why\n    return")
    assert package({**SOURCES, "kernel.py": told}) == package(SOURCES)


@pytest.mark.parametrize(
    ("file", "old", "new"), [("tiles.py", "* 2", "* 3"), ("kernel.py", "tile(x)\n", "tile(x + 1)\n")]
)
def test_an_edit_always_changes_it(package, file: str, old: str, new: str) -> None:  # type: ignore[no-untyped-def]
    assert package({**SOURCES, file: SOURCES[file].replace(old, new)}) != package(SOURCES)


def test_what_only_annotations_need_is_no_part(package) -> None:  # type: ignore[no-untyped-def]
    header = "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from {package}.types import Thing\n\n"
    typed = {**SOURCES, "kernel.py": header + SOURCES["kernel.py"], "types.py": "class Thing:\n    size = 1\n"}
    assert package(typed) == package(SOURCES)


def test_sources_that_a_module_names_belong_to_it_and_so_do_their_headers(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "native_package").mkdir()
    (tmp_path / "native_package" / "__init__.py").write_text('SOURCE = "engine.cc"\n')
    (tmp_path / "native_package" / "engine.cc").write_text('#include "lanes.h"\nint run() { return LANES; }\n')

    def digest(header: str) -> str:
        (tmp_path / "native_package" / "lanes.h").write_text(header)
        code._said.cache_clear()  # a process sees its own code as it was
        return digest_of_code(["native_package"])

    before = digest("#define LANES 8  // of AVX2\n")
    assert digest("#define LANES 8  /* of a vector */\n") == before != digest("#define LANES 16\n")


def test_every_backend_depends_on_what_it_is_built_with() -> None:
    """The first four were missing from lists that were kept by hand."""
    expected = {
        "tvm-cuda": {"extremum.py"},
        "onnxruntime-cuda": {"rewriting.py", "simplify.py"},
        "tensorrt": {"rewriting.py", "simplify.py"},
        "cutlass": {"gemm_sm90.cuh", "gemm_sm80.cuh", "conv_sm80.cuh", "partition.h"},
        "onednn": {"engine.cc", "convolution.h", "host_engine.h", "engine_module.cc"},
        "tvm": {"network.py", "steps.py"},
    }
    for name, wanted in expected.items():
        backend = plugins.load_class("backends", name)
        roots = [backend.__module__, *modules_of(name), code._REWRITE]
        found = {path.name.removeprefix("tvm_") for path in closure(roots)}
        assert wanted <= found, f"{name}: {sorted(wanted - found)}"


def test_the_digests_of_backends_differ() -> None:
    digests = {name: code_of(plugins.load_class("backends", name), name) for name in NAMES}
    assert len(set(digests.values())) == len(NAMES) and all(len(d) == 16 for d in digests.values())


def test_a_backend_that_was_typed_in_has_a_digest_of_what_it_does() -> None:
    """As in a notebook: there is no file."""
    from collage.backends.tvm.backend import TVMBackend

    def typed(tolerance: float) -> type[TVMBackend]:
        scope: dict[str, object] = {"TVMBackend": TVMBackend, "__name__": "no_such_module"}
        exec(f"class Mine(TVMBackend):\n    def tolerance(self):\n        return {tolerance}", scope)
        return scope["Mine"]  # type: ignore[return-value]

    assert "no_such_module" not in sys.modules
    assert code_of(typed(0.1), "tvm") == code_of(typed(0.1), "tvm") != code_of(typed(0.2), "tvm")


def test_records_of_equivalent_code_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that a user's disk has from before a change that builds the same."""
    from collage.records.key import keys_of

    backend = plugins.load("backends", "tvm")
    now = configuration_of(backend)["code"]
    monkeypatch.setattr(code, "_equivalences", lambda: {"tvm": code._Equivalent({"tuning": "none"}, [["old", now]])})
    workload = SimpleNamespace(backend=backend, structure="s", composites=(), threads=2)
    (key,) = keys_of([workload], "here", {})  # type: ignore[list-item]
    before = replace(key, configuration=digest_of({"code": "old", "tuning": "none"}), equivalent=())
    other = replace(key, configuration=digest_of({"code": "older", "tuning": "none"}), equivalent=())
    with RecordDatabase(tmp_path / "r.db") as database:
        database.put(Record.of(other, Cost(3.0)))
        assert database.costs([key]) == {} and database.get(key) is None
        database.put(Record.of(before, Cost(2.0)))
        assert database.costs([key])[key].seconds == 2.0 and database.get(key).cost.seconds == 2.0  # type: ignore[union-attr]
        database.put(Record.of(key, Cost(1.0)))
        assert database.costs([key])[key].seconds == 1.0


@pytest.mark.parametrize("name", ["tvm", "openvino", "onnxruntime", "onednn", "winograd"])
def test_records_of_before_the_great_move_are_found(name: str) -> None:
    """They were keyed by digests of lists of files; the fixed ones are those of the last commit before it."""
    old = {
        "onednn": "d0944506671f884e",
        "onnxruntime": "5da7a63e6358d92e",
        "openvino": "bde9e0df007e0ac6",
        "tvm": "aa5fd6549f207ac3",
        "winograd": "b87f16da3936b78b",
    }[name]
    backend = plugins.load("backends", name)
    assert old in equivalent_code(name, configuration_of(backend)["code"])
