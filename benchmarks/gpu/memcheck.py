"""One candidate of every backend under compute-sanitizer: reads and writes beyond memory, and uninitialised reads.

    python -m benchmarks.gpu.memcheck [--device cuda]

Exits with status 1 where the tool reports an error, and says so where it is not there.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys

#: A case that every library backend takes, and one that has convolutions.
_CASES = ("odd_product", "bottleneck")
_TOOLS = ("memcheck", "racecheck")
_LIMIT_S = 55


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    asked = parser.parse_args()
    tool = shutil.which("compute-sanitizer")
    if tool is None or asked.device == "cpu":
        print("compute-sanitizer is not there")
        return
    bad = False
    for name in _TOOLS:
        command = [tool, "--tool", name, "--target-processes", "all", "--error-exitcode", "3", sys.executable, "-m"]
        command += ["benchmarks.gpu.numerics", "--cases", *_CASES, "--dtypes", "float16", "--most", "1"]
        try:
            done = subprocess.run([*command, "--budget", str(_LIMIT_S - 5)], timeout=_LIMIT_S)
        except subprocess.TimeoutExpired:
            print(f"{name}: not finished in {_LIMIT_S} s", flush=True)
            continue
        print(f"{name}: status {done.returncode}", flush=True)
        bad = bad or done.returncode == 3
    raise SystemExit(1 if bad else 0)


if __name__ == "__main__":
    main()
