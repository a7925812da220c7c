"""PlanData: the fields of a plan: which backend runs which nodes, at what cost, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from collage.annotations.precision import FLOAT32, INT8
from collage.confirm.confirmation import SEARCHED, Confirmation
from collage.confirm.correction import Round
from collage.cost.cost import Cost
from collage.cost.transition import Transition
from collage.planned.graph import PlannedCandidates, PlannedGraph


class PlannedPartition(msgspec.Struct, frozen=True):
    """One partition of the plan that ships.

    Attributes
    ----------
    backend
        Its name; `host` for nodes that stay on the virtual machine.
    nodes
        Indices in the canonical module's dataflow graph.
    operators
        Operators of the nodes, in order.
    composites
        (label, nodes) of library patterns inside.
    cost
        Estimated latency of the partition alone.
    runner_up, runner_up_cost
        Backend of the next best candidate on the same nodes, "" when there is none, and its cost.
    precision
        In how many bits the backend computes what is float32.
    """

    backend: str
    nodes: tuple[int, ...]
    operators: tuple[str, ...]
    composites: tuple[tuple[str, tuple[int, ...]], ...] = ()
    cost: Cost = msgspec.field(default_factory=Cost.zero)
    runner_up: str = ""
    runner_up_cost: Cost = msgspec.field(default_factory=Cost.unknown)
    precision: str = FLOAT32

    @property
    def int8(self) -> int:
        """How many of its products are in eight bits by labels."""
        return sum(len(nodes) for label, nodes in self.composites if label == INT8)

    @property
    def called(self) -> tuple[str, ...]:
        """The libraries that it calls between its kernels (`collage.compile.rewrite.steps`)."""
        return tuple(sorted({label.partition(":")[0] for label, _ in self.composites if ":" in label}))

    @property
    def margin(self) -> float:
        """How much slower, relatively, the runner-up is; NaN when there is none."""
        return self.runner_up_cost.seconds / self.cost.seconds - 1.0 if self.cost.seconds > 0 else float("nan")


class PlannedTransition(msgspec.Struct, frozen=True):
    """What the search charged for the transition from one backend of the plan to another.

    Attributes
    ----------
    producer, consumer
        Names of the backends.
    transition
        Its cost, and what was measured.
    """

    producer: str
    consumer: str
    transition: Transition


class PlannedCopy(msgspec.Struct, frozen=True):
    """A value that is copied to another device in every call.

    Attributes
    ----------
    node
        Its index in the canonical module's dataflow graph.
    operator
        What gives it; "input" for an input of the network.
    source, target
        Devices.
    nbytes
        Bytes of the value.
    seconds
        What the search charged.
    """

    node: int
    operator: str
    source: str
    target: str
    nbytes: int
    seconds: float


class PlanRound(msgspec.Struct, frozen=True, rename={"searched": "searched_s", "isolated": "isolated_s"}):
    """A placement that was searched and run on the way to the plan (`collage.confirm.correction`).

    Attributes
    ----------
    partitions
        Number of partitions.
    searched
        Seconds: the sum of costs that it was found with, before it was run: isolated ones in the first round, corrected
        ones later.
    isolated
        Seconds: the sum of what its partitions cost alone; NaN where that is not known.
    latency
        End-to-end latency of its trial.
    loss
        `latency` over that of the fastest baseline in the same round; infinite when it failed.
    """

    partitions: int
    searched: float
    isolated: float
    latency: Cost
    loss: float

    @classmethod
    def of(cls, found: Round) -> PlanRound:
        placement = found.partitioning
        return cls(len(placement.partitions), placement.cost.seconds, found.isolated, found.latency, found.loss)


class PlannedPoint(msgspec.Struct, frozen=True):
    """A placement of the frontier of latency and error.

    Attributes
    ----------
    sum_s
        Seconds: the sum of its costs.
    bound_s
        Seconds: proven lower bound of that sum for every placement of at most its predicted error.
    predicted
        Predicted relative L2 error of the outputs: the root of the sum of its operators' squared errors.
    measured, upper
        Error, or drop of the user's metric, on held-out samples, and its upper confidence bound (95%, one-sided); None
        where it was not run.
    backends
        Names, sorted; with "int8" where products of graph backends are in eight bits.
    partitions
        Number of partitions.
    """

    sum_s: float
    bound_s: float
    predicted: float
    measured: float | None = None
    upper: float | None = None
    backends: tuple[str, ...] = ()
    partitions: int = 0


class PlannedAccuracy(msgspec.Struct, frozen=True):
    """The error budget, and how the plan keeps it.

    Attributes
    ----------
    limit
        The largest relative L2 error of an output, or the largest drop of the user's metric.
    metric
        Whether it is a drop of a metric.
    samples
        Held-out samples that the plan was judged on.
    predicted, measured, upper
        As of `PlannedPoint`, of the plan that ships: 0 for float32.
    gap
        Share by which the sum of costs of any placement of the predicted error can be lower, at most; 1 where nothing
        is proven.
    assumes_intervals
        Whether `gap` rests on predicted intervals of costs that were not measured.
    judged
        How many placements were run on the held-out samples.
    """

    limit: float
    metric: bool
    samples: int
    predicted: float = 0.0
    measured: float = 0.0
    upper: float = 0.0
    gap: float = 0.0
    assumes_intervals: bool = False
    judged: int = 0


class PlanData(
    msgspec.Struct, frozen=True, kw_only=True, rename={"versions": "backends", "lower_bound": "lower_bound_s"}
):
    """A placement, confirmed or not, with its reasons.

    Attributes
    ----------
    network
        Hash of the structure of the module that it is a plan for.
    choice
        Name of the contestant that ships: "collage" is the searched one.
    threads
        Number of threads of the deployment.
    device
        The kind of device that it is for, "cpu" or "cuda".
    target
        TVM's target of the board that it is for; "" of this machine.
    inputs
        Shape of each input of the network, by name; none in older files.
    versions
        Version of each backend, by name.
    searcher
        The searcher with its parameters, as text.
    estimator
        Class name of the estimator.
    searched_cost
        Seconds: the sum of the searched plan's costs, transitions included.
    lower_bound
        Seconds: proven lower bound of that sum.
    greedy_loss
        How much more, relatively, the placement of the greedy searcher costs than the searched one, by the costs that
        the first search went by; NaN where those do not cover the network.
    corrected_cost
        Seconds: what the searched plan's partitions cost inside the whole, transitions included, as its own run has
        corrected them; Unknown when it was not run.
    rounds
        The placements that were run on the way; the searched plan is one of them.
    confirmation
        What was measured end to end; None when the plan was not confirmed.
    notes
        Notes to the user.
    transitions
        Transitions between the backends of the searched plan; () in older files.
    partitions
        Partitions of the plan that ships, in execution order; () when TVM's own build ships.
    copies
        Copies between the plan's devices, where there are several.
    accuracy
        The error budget and how the plan keeps it; None without a budget.
    frontier
        Placements between the fastest and the most accurate one; () without an error budget.
    ranges
        (node, lowest, highest value) of nodes in partitions with products in eight bits.
    graph
        The network; None in older files.
    candidates
        Candidates from which the partitions were chosen; None in older files, and where TVM's own build ships.
    """

    network: str
    choice: str
    threads: int
    device: str = "cpu"
    target: str = ""
    inputs: Mapping[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    versions: Mapping[str, str]
    searcher: str = ""
    estimator: str = ""
    searched_cost: Cost = msgspec.field(default_factory=Cost.unknown)
    lower_bound: float = 0.0
    greedy_loss: float = math.nan
    corrected_cost: Cost = msgspec.field(default_factory=Cost.unknown)
    rounds: tuple[PlanRound, ...] = ()
    confirmation: Confirmation | None = None
    notes: tuple[str, ...] = ()
    transitions: tuple[PlannedTransition, ...] = ()
    partitions: tuple[PlannedPartition, ...]
    copies: tuple[PlannedCopy, ...] = ()
    accuracy: PlannedAccuracy | None = None
    frontier: tuple[PlannedPoint, ...] = ()
    ranges: tuple[tuple[int, float, float], ...] = ()
    graph: PlannedGraph | None = None
    candidates: PlannedCandidates | None = None

    @property
    def batch(self) -> int:
        """Samples in a call: the first extent of the first input that has one; 1 where that is not known."""
        return next((shape[0] for shape in self.inputs.values() if shape), 1)

    @property
    def latency(self) -> Cost:
        """End-to-end latency of the plan that ships; Unknown when it was not run."""
        found = self.confirmation
        return Cost.unknown() if found is None else found.of(found.shipped).latency

    @property
    def answer(self) -> PlanRound | None:
        """The round in which the searched plan was found; None where it was not run."""
        return next((r for r in self.rounds if r.searched == self.searched_cost.seconds), None)

    @property
    def additive_error(self) -> float:
        """Latency of the searched plan in its first runs over the sum of costs that it was found with, less 1: how
        wrong the sum was that was predicted before it was run. NaN when it was not run.
        """
        found = self.answer
        return math.nan if found is None else found.latency.seconds / found.searched - 1.0

    @property
    def isolated_error(self) -> float:
        """The same over the sum of what its partitions cost alone, each at its own time; NaN where not known."""
        found = self.answer
        return math.nan if found is None else found.latency.seconds / found.isolated - 1.0

    @property
    def corrected_errors(self) -> list[float]:
        """The same for every placement that was found with corrected costs: what correction is worth."""
        return [r.latency.seconds / r.searched - 1.0 for r in self.rounds[1:] if r.latency.is_finite]

    @property
    def apparent_loss(self) -> float:
        """How much slower, relatively, the searched plan is than the best contestant; 0 when it is the best (RFC
        0062).
        """
        if self.confirmation is None:
            return math.nan
        ratios = {c.name: c.ratio[0] for c in self.confirmation.contestants if c.ratio is not None}
        return ratios[SEARCHED] / min(ratios.values()) - 1.0 if SEARCHED in ratios else math.nan
