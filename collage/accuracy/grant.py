"""Grant: an error budget together with what was measured for it: ranges, sensitivities and reference outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from collage.accuracy.allowance import Allowance
from collage.accuracy.budget import Budget
from collage.accuracy.calibration import calibrated_once
from collage.accuracy.digests import weights_digest
from collage.accuracy.errors import ErrorTable, sensitivities
from collage.annotations.precision import INT8, ranges_of
from collage.backends.base import Backend
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.from_relax import read_graph
from collage.measure.reference import ReferenceRun
from collage.progress import Reporter
from collage.records import RecordDatabase
from collage.records.key import digest_of


@dataclass(frozen=True)
class Grant:
    """What a search within an error budget needs.

    Attributes
    ----------
    budget
        The limit, and the held-out samples on which placements are judged.
    errors
        The error that each operator adds in each precision.
    int8
        Whether single products may be in eight bits.
    judged_on
        Digest of the samples that the budget is judged on, of the weights and of the ranges; "" where verdicts cannot
        be recorded.
    """

    budget: Budget
    errors: ErrorTable
    int8: bool
    judged_on: str


def granted(
    allowance: Allowance,
    module: Any,
    graph: DataflowGraph,
    backends: Mapping[str, Backend],
    threads: int,
    reference: ReferenceRun,
    database: RecordDatabase,
    reporter: Reporter,
) -> tuple[Any, Grant]:
    """Calibrate the module and measure sensitivities: the calibrated module, and the grant.

    Parameters
    ----------
    reference
        Float32 run of the module, on any inputs.
    """
    precisions = allowance.wish.precisions
    reporter.stage("calibrating")
    network = weights_digest(module, graph)
    module = calibrated_once(module, graph, reference, allowance.searched_with, network, database)
    reporter.stage("measuring sensitivities")
    errors = sensitivities(
        module,
        read_graph(module),
        backends,
        allowance.searched_with,
        threads,
        database,
        reporter,
        precisions,
        reference,
        network,
    )
    # What a placement computes depends on the weights and on the ranges, too.
    judged_on = allowance.key and digest_of([allowance.key, network, ranges_of(module)])
    return module, Grant(allowance.budget(reference), errors, INT8 in precisions, judged_on)
