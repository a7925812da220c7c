"""Plug-ins: names come from the entry points of installed packages, and every failure says what to do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import collage
from collage import errors, plugins
from collage.errors import PluginError
from collage.search import Searcher


@pytest.fixture
def third_party(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package installed next to ours, with one searcher that works and three that do not."""
    (tmp_path / "acme_search.py").write_text(
        "from collage.search import Searcher\n"
        "class First(Searcher):\n"
        "    def __init__(self, width=3):\n"
        "        self.width = width\n"
        "    def search(self, problem):\n"
        "        raise NotImplementedError\n"
        "an_instance = 3\n"
    )
    (tmp_path / "acme_broken.py").write_text("import a_library_that_is_not_installed\n")
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[collage.searchers]\nfirst = acme_search:First\nbroken = acme_broken:Gone\n"
        "nothing = acme_search:Absent\nnumber = acme_search:an_instance\ndijkstra = acme_search:First\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("acme_search", "acme_broken"):
        sys.modules.pop(name, None)


def test_our_own_plugins_are_found_by_name() -> None:
    assert "dijkstra" in plugins.names("searchers")
    assert {"onnxruntime", "openvino", "tvm"} <= set(plugins.names("backends"))
    searcher = plugins.load("searchers", "dijkstra")
    assert isinstance(searcher, Searcher) and type(searcher).__name__ == "DijkstraSearcher"


def test_names_are_sorted_and_import_nothing(third_party: Path) -> None:
    found = plugins.names("searchers")
    assert found == sorted(found) and {"broken", "first"} <= set(found)
    assert "acme_search" not in sys.modules and "acme_broken" not in sys.modules


def test_an_instance_is_handed_back_and_a_class_is_made() -> None:
    instance = plugins.load("searchers", "dijkstra")
    assert plugins.load("searchers", instance) is instance
    assert isinstance(plugins.load("searchers", type(instance)), type(instance))


def test_parameters_go_to_the_constructor(third_party: Path) -> None:
    assert plugins.load("searchers", "first", width=7).get_params() == {"width": 7}


def test_an_unknown_name_lists_the_valid_ones_sorted(third_party: Path) -> None:
    with pytest.raises(
        PluginError, match=r"no searcher is called 'dikstra'; valid names: .*broken, .*dijkstra, .*first"
    ):
        plugins.load("searchers", "dikstra")


def test_a_plugin_that_does_not_import_names_its_package_and_the_cause(third_party: Path) -> None:
    with pytest.raises(PluginError, match=r"'broken' of package acme .*a_library_that_is_not_installed"):
        plugins.load("searchers", "broken")
    with pytest.raises(PluginError, match=r"'nothing' of package acme .*Absent"):
        plugins.load("searchers", "nothing")
    with pytest.raises(PluginError, match=r"'number' of package acme is not a class"):
        plugins.load("searchers", "number")


def test_another_package_cannot_replace_one_of_ours(third_party: Path) -> None:
    assert plugins.load_class("searchers", "dijkstra").__module__ == "searchers.dijkstra"


def test_the_package_exports_what_a_plug_in_needs() -> None:
    needed = {"Backend", "Availability", "PartitionRule", "IndexSet", "CandidatePartition", "Searcher", "CostEstimator"}
    raised = {name for name, found in vars(errors).items() if isinstance(found, type)} - {"Path"}
    assert needed | raised <= set(collage.__all__)
    assert all(getattr(collage, name).__name__ == name for name in needed | raised)


def test_an_unknown_kind_is_a_programming_error() -> None:
    with pytest.raises(ValueError, match="searchers, estimators, backends"):
        plugins.names("searcher")  # type: ignore[arg-type]
