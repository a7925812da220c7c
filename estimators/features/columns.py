"""What the features are: one table that the extraction, the documentation and the model files share.

A workload is described three times. By its *work*, amounts that add up over operators, borders and the call, from
which an analytic model adds up seconds; by *totals*, what is known of the whole; and by the *details* of its kernels.
From the latter two trees learn how far the sum is off.
"""

from __future__ import annotations

import textwrap
from typing import NamedTuple

from estimators.features.operator import ANCHORS, CLASSES

#: Any change of a feature's name, order, unit or formula raises it; models of another version are refused.
FEATURE_VERSION = 3

#: What kernels are told apart by: an operator class; elementwise operators that follow an anchor; windows that slide.
KERNEL_KINDS = (*CLASSES, "epilogue", "pool")
#: All that takes time in a workload: kernels, views, the tensors that cross its border by who takes or makes them
#: (libraries may change their layout there), and the call itself.
KINDS = (*KERNEL_KINDS, "view", *(f"entry_{cls}" for cls in CLASSES), *(f"exit_{cls}" for cls in CLASSES), "call")
_KERNEL_TERMS = ("calls", "flops", "input", "weight", "output")
_BORDER_TERMS = ("calls", "bytes")


class Feature(NamedTuple):
    """One feature: a column of the model's input."""

    name: str
    unit: str
    formula: str


class Work(NamedTuple):
    """A column of the work: so much of one term of one kind; `family` are kinds that resemble each other."""

    kind: str
    term: str
    family: str

    @property
    def name(self) -> str:
        return f"{self.kind}.{self.term}"


def _work() -> tuple[Work, ...]:
    columns = []
    for kind in KINDS:
        border = kind.startswith(("entry_", "exit_"))
        family = "anchor" if kind in ANCHORS else "border" if border else "other"
        terms = _KERNEL_TERMS if kind in KERNEL_KINDS else _BORDER_TERMS if border else ("calls",)
        columns += [Work(kind, term, family) for term in terms]
    return tuple(columns)


WORK = _work()
#: Where the columns of a kind begin.
FIRST_COLUMN = {kind: next(i for i, work in enumerate(WORK) if work.kind == kind) for kind in KINDS}

TERMS: tuple[Feature, ...] = (
    Feature("calls", "microsecond", "one for each operator, tensor or call of the kind"),
    Feature("flops", "second at peak", "2 M N K groups of an anchor; else elements x flops per element"),
    Feature("input", "second at memory bandwidth", "activations read"),
    Feature("weight", "second at memory bandwidth", "constants read"),
    Feature("output", "second at memory bandwidth", "results written"),
    Feature("bytes", "second at memory bandwidth", "the tensors that enter or leave"),
)

_LOG = "log2(1 + x)"

TOTAL_FEATURES: tuple[Feature, ...] = (
    Feature("total_flops", f"{_LOG}, flop", "sum over the operators"),
    Feature("total_activation_bytes", f"{_LOG}, byte", "activations read and written, sum over the operators"),
    Feature("total_weight_bytes", f"{_LOG}, byte", "constants read, sum over the operators"),
    Feature("total_roofline", "log2, microsecond", "sum of the operators' roofline times"),
    Feature("total_intensity", f"{_LOG}, flop/byte", "flops / bytes of the whole"),
    Feature("entering_bytes", f"{_LOG}, byte", "inputs"),
    Feature("leaving_bytes", f"{_LOG}, byte", "outputs"),
    Feature("inputs", "count", "tensors that enter"),
    Feature("outputs", "count", "tensors that leave"),
    Feature("operators", f"{_LOG}, count", "operators"),
    Feature("kernels", f"{_LOG}, count", "operators that are no views and no epilogues"),
    Feature("depth", f"{_LOG}, count", "operators on the longest path"),
    Feature("width", "count", "operators / depth: independent branches"),
    Feature("layout_crossings", "count", "transposes, concats, splits and other moves of data"),
    Feature("composites", "count", "library patterns inside"),
    Feature("composite_share", "fraction", "share of the operators that lie in a library pattern"),
    *(Feature(f"share_{cls}", "fraction", f"roofline time of `{cls}` operators / that of all") for cls in CLASSES),
    Feature("threads", "log2, count", "threads of the deployment"),
)

DETAIL_FEATURES: tuple[Feature, ...] = (
    Feature("flops", f"{_LOG}, flop", "of the kernel"),
    Feature("input", f"{_LOG}, byte", "activations read"),
    Feature("weight", f"{_LOG}, byte", "constants read"),
    Feature("output", f"{_LOG}, byte", "results written"),
    Feature("traffic", f"{_LOG}, byte", "all of these, and what the epilogue reads: it fits into a cache or does not"),
    Feature("intensity", f"{_LOG}, flop/byte", "flops / bytes"),
    Feature("rows", f"{_LOG}, count", "M of the implicit matrix product; elements of another operator"),
    Feature("columns", f"{_LOG}, count", "N"),
    Feature("products", f"{_LOG}, count", "K"),
    Feature("groups", f"{_LOG}, count", "independent matrix products"),
    Feature("window", "count", "elements of the window of a convolution or pool"),
    Feature("stride", "count", "product of the strides"),
    Feature("rank", "count", "of the result"),
    Feature("channels_in", f"{_LOG}, count", "of one group of a convolution"),
    Feature("columns_padded", "ratio", "N, filled up to vectors of 16 / N"),
    Feature(
        "channels_padded", "ratio", "input channels, or K of a matrix product, filled up to vectors of 16 / themselves"
    ),
    Feature("inner", f"{_LOG}, count", "last extent of the result"),
    Feature("inner_padded", "ratio", "last extent, filled up to vectors of 16 / itself"),
    Feature(
        "run", f"{_LOG}, count", "elements in a row that an elementwise operator reads alike; all if none is broadcast"
    ),
    Feature("run_padded", "ratio", "these, filled up to vectors of 16 / themselves"),
    Feature("epilogue", "count", "elementwise operators that follow the anchor"),
    Feature("epilogue_input", f"{_LOG}, byte", "read by them besides its result"),
    Feature("epilogue_expensive", "count", "of them, those that are polynomials or divisions"),
    Feature("entering", "count", "tensors that enter the workload here"),
    Feature("leaving", "count", "tensors that leave the workload here"),
    Feature("consumers", "count", "operators that read the result"),
    Feature("constant", "0 or 1", "whether constants are read"),
    Feature("expensive", "0 or 1", "elementwise, and a polynomial or a division"),
    *(
        Feature(flag, "0 or 1", f"whether it is a {flag}")
        for flag in ("norm", "maximum", "concat", "permute", "pad", "slice", "split", "mean")
    ),
)

DETAIL_NAMES = tuple(feature.name for feature in DETAIL_FEATURES)
WORK_NAMES = tuple(work.name for work in WORK)
TOTAL_NAMES = tuple(feature.name for feature in TOTAL_FEATURES)


def as_markdown() -> str:
    """The tables as the documentation shows them."""
    kinds = "Kinds of work: " + ", ".join(f"`{kind}`" for kind in KINDS) + "."
    lines = [*textwrap.wrap(kinds, 100), ""]
    tables = (("Term of work", TERMS), ("Total feature", TOTAL_FEATURES), ("Detail of a kernel", DETAIL_FEATURES))
    for title, features in tables:
        lines += [f"| {title} | unit | formula |", "|---|---|---|"]
        lines += [f"| `{f.name}` | {f.unit} | {f.formula} |" for f in features] + [""]
    return "\n".join(lines)
