"""`python -m benchmarks.workloads NAME -o FILE.onnx` writes a workload; `--list` names them all."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.workloads import build, builders
from benchmarks.workloads.builder import FLOATS


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and write the file."""
    known = builders()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.workloads", description="Write a benchmark network as ONNX."
    )
    parser.add_argument("name", nargs="?", choices=list(known), metavar="NAME", help="the network; see --list")
    parser.add_argument("-o", "--output", type=Path, help="the file to write; NAME.onnx when left out")
    parser.add_argument("--batch", type=int, default=1, help="batch size")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random weights")
    parser.add_argument("--dtype", choices=FLOATS, default="float32", help="of weights and activations")
    parser.add_argument("--list", action="store_true", help="name the networks and what they are")
    options = parser.parse_args(arguments)
    if options.list:
        for name, builder in known.items():
            print(f"{name:18} {(builder.__doc__ or '').splitlines()[0]}")
        return
    if options.name is None:
        parser.error("NAME is required, or --list")
    path = options.output or Path(f"{options.name}.onnx")
    model = build(options.name, batch=options.batch, seed=options.seed, dtype=options.dtype)
    data = model.SerializeToString(deterministic=True)
    try:
        path.write_bytes(data)
    except OSError as error:
        parser.error(f"cannot write {path}: {error.strerror}")
    print(f"{path}: {len(data) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
