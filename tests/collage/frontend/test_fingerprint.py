"""The fingerprint depends on structure and weights, and on nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
from frontend_cases import FLOAT, model, node, normal, save

from collage.frontend import fingerprint, load


def network(
    weight: np.ndarray | None = None, batch: int = 2, strides: int = 1, names: str = "", activation: str = "Relu"
) -> onnx.ModelProto:
    nodes = [
        node("Conv", [f"x{names}", f"w{names}"], [f"t{names}"], strides=[strides, strides]),
        node(activation, [f"t{names}"], [f"y{names}"]),
    ]
    weights = {f"w{names}": normal(4, 3, 3, 3) if weight is None else weight}
    return model(nodes, {f"x{names}": (FLOAT, [batch, 3, 7, 7])}, {f"y{names}": FLOAT}, weights)


def test_equal_networks_have_equal_fingerprints_whatever_their_names() -> None:
    first = fingerprint(load(network()))
    assert len(first) == 64
    assert first == fingerprint(load(network())) == fingerprint(load(network(names="_other")))


def test_every_part_counts() -> None:
    changed = normal(4, 3, 3, 3)
    changed[3, 2, 2, 2] = np.nextafter(changed[3, 2, 2, 2], np.float32(9))
    variants = [
        network(),
        network(weight=changed),
        network(batch=3),
        network(strides=2),
        network(activation="Tanh"),
    ]
    assert len({fingerprint(load(variant)) for variant in variants}) == len(variants)


def test_the_dataflow_counts() -> None:
    """Same operators and types, other operands."""
    ends = [["a", "b"], ["b", "a"], ["a", "a"]]
    prints = set()
    for operands in ends:
        nodes = [node("Exp", ["x"], ["a"]), node("Sin", ["a"], ["b"]), node("Sub", operands, ["y"])]
        prints.add(fingerprint(load(model(nodes, {"x": (FLOAT, [3])}, {"y": FLOAT}))))
    assert len(prints) == len(ends)


def test_other_processes_and_other_paths_agree(tmp_path: Path) -> None:
    script = "import sys; from collage.frontend import *; print(fingerprint(load(sys.argv[1])))"
    found = []
    for seed, name in (("0", "a.onnx"), ("1", "b/c.onnx")):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        save(network(), path)
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", script, str(path)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=300)
        found.append(done.stdout.strip().splitlines()[-1])
    assert found == [fingerprint(load(network()))] * 2
