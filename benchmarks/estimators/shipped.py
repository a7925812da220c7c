"""End-to-end regret: what `learned` ships against what `measured` ships, by the referee.

    python -m benchmarks.estimators.shipped [NAME ...] --training LOG ... --folder FOLDER

Each network, by default those that nothing was chosen on (`HELD_OUT`), is tuned twice with empty records, confirmation
included, as a user does it; the two compiled models are raced, each in a process of its own. The regret is the latency
of the one over that of the other. `--training` are the logs that the shipped cost models learned from: candidates whose
structure is in them are counted and told. FOLDER/NAME.json has everything of a network; what is there is skipped.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks.estimators.networks import Network, candidate_records
from benchmarks.referee.intervals import ratio_interval
from benchmarks.referee.origin import origin
from benchmarks.referee.process import Entry
from benchmarks.referee.race import Repetition, Terms, race
from benchmarks.referee.tuning import TuningError, tune
from benchmarks.referee.verdict import TOLERANCE
from benchmarks.workloads import HELD_OUT, build
from collage.backends.resolve import resolve_backends
from collage.files import replacing

#: The estimator that is judged, and the one that it is judged by.
_JUDGED, _BY = "learned", "measured"


def structures_in(sources: Iterable[Path], threads: int) -> frozenset[str]:
    """Structures of all candidates that records are of."""
    return frozenset(structure for (structure, _, _), _ in candidate_records(sources, threads))


def shared(structures: Collection[str], training: Collection[str]) -> dict[str, int]:
    """How many of a network's structures are in training records, of how many."""
    return {"shared": len(frozenset(structures) & frozenset(training)), "of": len(frozenset(structures))}


def regret(repetitions: Sequence[Repetition]) -> dict[str, float]:
    """Latency of what the judged estimator ships over that of what the other ships: median, low, high.

    Raises
    ------
    ValueError
        A model does not run, or their numbers differ.
    """
    for repetition in repetitions:
        for name, reason in repetition.unavailable.items():
            raise ValueError(f"what {name} ships does not run: {reason}")
        if max(repetition.errors.values()) > TOLERANCE:
            raise ValueError(f"the numbers of what {_JUDGED} and {_BY} ship differ")
    rounds = {name: [repetition.medians[name] for repetition in repetitions] for name in (_JUDGED, _BY)}
    return asdict(ratio_interval(rounds[_JUDGED], rounds[_BY]))


def judge_network(network: str, options: Sequence[str], terms: Terms) -> dict[str, Any]:
    """Tune it with both estimators, and race what they ship; JSON-ready.

    Raises
    ------
    TuningError
        It could not be tuned.
    ValueError
        A model does not run, or their numbers differ.
    """
    with tempfile.TemporaryDirectory(prefix="estimators-") as name:
        folder = Path(name)
        model = folder / f"{network}.onnx"
        model.write_bytes(build(network).SerializeToString(deterministic=True))
        tuned = {}
        for estimator in (_JUDGED, _BY):
            chosen = [*options, "--estimator", estimator]
            tuned[estimator] = tune(model, folder / f"{estimator}.so", folder / f"{estimator}.db", chosen)
        entries = [Entry(estimator, "collage", found.library) for estimator, found in tuned.items()]
        repetitions = race(model, entries, terms)
    return {
        "network": network,
        "tunes": {estimator: found.facts for estimator, found in tuned.items()},
        "regret": regret(repetitions),
        "repetitions": [asdict(repetition) for repetition in repetitions],
    }


def markdown(results: Sequence[Mapping[str, Any]]) -> str:
    """A row per network, and the median and worst regret under it."""
    head = [
        "network",
        "structures in training",
        *(f"ships by {name}, s to a plan" for name in (_JUDGED, _BY)),
        "regret",
    ]
    rows = []
    for result in results:
        found, known = result["regret"], result["structures"]
        tunes = [result["tunes"][name] for name in (_JUDGED, _BY)]
        cells = [f"{', '.join(tuned['ships']) or tuned['choice']}, {tuned['seconds']:.0f}" for tuned in tunes]
        ratio = f"{found['median']:.3f} ({found['low']:.3f} to {found['high']:.3f})"
        rows.append([result["network"], f"{known['shared']} of {known['of']}", *cells, ratio])
    lines = [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]
    regrets = [result["regret"]["median"] for result in results]
    worst = max(results, key=lambda result: float(result["regret"]["median"]))["network"]
    return "\n".join([*lines, "", f"Regret: median {np.median(regrets):.3f}, worst {max(regrets):.3f} ({worst})."])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", metavar="NAME", help="by default those held out")
    parser.add_argument("--training", type=Path, nargs="+", required=True, help="logs that cost models learned from")
    parser.add_argument("--folder", type=Path, default=Path("build/shipped"), help="of the results")
    parser.add_argument("--tune", default="", metavar="OPTIONS", help="more options of `collage tune`, in one word")
    parser.add_argument("--rounds", type=int, default=Terms().rounds, help="of each of three repetitions")
    parser.add_argument("--seconds", type=float, default=Terms().seconds, help="of calls, per contestant and round")
    parser.add_argument("--threads", type=int, default=Terms().threads)
    options = parser.parse_args(arguments)
    terms = Terms(options.rounds, options.seconds, threads=options.threads)
    options.folder.mkdir(parents=True, exist_ok=True)
    console = Console(width=None if sys.stdout.isatty() else 120)
    networks = options.networks or list(HELD_OUT)
    files = {network: options.folder / f"{network}.json" for network in networks}
    failed = False
    if missing := [network for network in networks if not files[network].exists()]:
        training, backends = structures_in(options.training, options.threads), resolve_backends(None)
        for network in missing:
            console.print(f"{network} ...", style="dim")
            try:
                result = judge_network(network, shlex.split(options.tune), terms)
            except (TuningError, ValueError) as error:
                console.print(f"{network}: {error}", markup=False)
                failed = True
                continue
            structures = Network(network, backends, options.threads).structures
            with replacing(files[network]) as partial:
                known = shared(structures, training)
                partial.write_text(json.dumps({**result, "structures": known, **origin()}) + "\n")
    results = [json.loads(path.read_text()) for path in files.values() if path.exists()]
    if results:
        print(markdown(results))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
