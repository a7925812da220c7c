"""Pictures of all pages, to look at: `python -m tests.collage.report.pictures -o build/pictures` (`make pictures`).

Plans of BERT and of ResNet-50 are made by prediction, which takes seconds; what a contest and a call look like, a plan
written by hand shows. Each page is as wide as a desk's window and as a telephone; plans are also pictured at the
section with the graph, with a partition selected.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx

import collage
from benchmarks import workloads
from collage.cli.main import main as command
from collage.report.difference import difference
from collage.report.html import write_difference, write_html
from tests.collage.report.conftest import SIZES
from tests.collage.report.networks import with_network, with_timeline

LOG = Path(__file__).parents[2] / "estimators" / "data" / "records.jsonl.gz"


def planned(name: str, folder: Path, backends: Sequence[str]) -> Any:
    """The plan of a network, by prediction."""
    model = folder / f"{name}.onnx"
    if not model.exists():
        onnx.save(workloads.build(name), model)
    return collage.partition(
        model, backends, estimator="learned", records=folder / "records.db", confirm_end_to_end=False, threads=2
    )


def pages(folder: Path) -> Iterator[tuple[str, Path]]:
    """Names of pages, and the files that they are in."""

    def written(name: str, write: Callable[[Path], object]) -> tuple[str, Path]:
        path = folder / f"{name}.html"
        write(path)
        return name, path

    contest = with_timeline(with_network(3))
    yield written("contest", lambda path: write_html(contest, path, "a network.onnx"))
    for name in ("bert_base", "resnet50"):
        plan = planned(name, folder, ("tvm", "onednn"))
        yield written(name, lambda path, plan=plan, name=name: write_html(plan, path, f"{name}.onnx"))
    found = difference(plan, planned("resnet50", folder, ("tvm", "onednn", "onnxruntime")))
    yield written("diff", lambda path: write_difference(found, path, "without and with ONNX Runtime"))
    yield written("training", lambda path: _run("train", LOG, "-o", folder / "cost.json", "--report", path))
    yield written("records", lambda path: _run("records", "report", LOG, "-o", path))


def _run(*arguments: object) -> None:
    try:
        command([str(argument) for argument in arguments])
    except SystemExit as ended:
        if ended.code:
            raise


def take(files: Iterator[tuple[str, Path]], folder: Path) -> None:
    """A picture of each page at each width, and of the graph of those that have one; in the dark, too."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, path in files:
            for (width, height), scheme in ((SIZES[0], "light"), (SIZES[1], "light"), (SIZES[0], "dark")):
                if scheme == "dark" and name not in ("contest", "training"):
                    continue
                page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
                page.goto(path.as_uri())
                page.wait_for_timeout(1500)
                named = f"{name}-{width}{'-dark' if scheme == 'dark' else ''}"
                page.screenshot(path=folder / f"{named}.png", full_page=True)
                if page.locator(".canvas").count():
                    page.locator("#partitions button").first.click()
                    page.locator(".panel .toggle").click()
                    page.wait_for_timeout(300)
                    page.locator("#network").screenshot(path=folder / f"{named}-graph.png")
                page.close()
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("build/pictures"), help="folder of the pictures")
    folder = parser.parse_args().output.resolve()  # a browser takes no relative address
    folder.mkdir(parents=True, exist_ok=True)
    take(pages(folder), folder)


if __name__ == "__main__":
    main()
