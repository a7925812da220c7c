"""What the features are: one table that the extraction, the documentation and the model files share.

A workload is described twice: by *rows*, one per operator, per tensor that crosses its border and for the call itself,
whose latencies add up; and by *totals*, from which corrections of that sum are learned.
"""

from __future__ import annotations

from typing import NamedTuple

from estimators.features_operator import CLASSES

#: Any change of a feature's name, order, unit or formula raises it; models of another version are refused.
FEATURE_VERSION = 1

#: What a row stands for: an operator of a class, or what a workload costs besides its operators.
ROW_KINDS = (*CLASSES, "entry", "exit", "call")


class Feature(NamedTuple):
    """One feature: a column of the model's input."""

    name: str
    unit: str
    formula: str


_LOG = "log2(1 + x)"

ROW_FEATURES: tuple[Feature, ...] = (
    *(Feature(f"is_{kind}", "0 or 1", f"the row is of kind `{kind}`") for kind in ROW_KINDS),
    Feature("flops", f"{_LOG}, flop", "2 M N K groups of an anchor; else elements x flops per element"),
    Feature("input_bytes", f"{_LOG}, byte", "activations read; of `entry` and `exit` the tensor"),
    Feature("weight_bytes", f"{_LOG}, byte", "constants read"),
    Feature("output_bytes", f"{_LOG}, byte", "results written"),
    Feature("intensity", f"{_LOG}, flop/byte", "flops / (bytes read and written)"),
    Feature("roofline", "log2, microsecond", "the larger of flops / peak and bytes / bandwidth"),
    Feature("rows", f"{_LOG}, elements", "M of the (implicit) matrix product"),
    Feature("columns", f"{_LOG}, elements", "N of the (implicit) matrix product"),
    Feature("products", f"{_LOG}, elements", "K of the (implicit) matrix product; elements reduced into one"),
    Feature("groups", f"{_LOG}, count", "independent matrix products"),
    Feature("kernel", "elements", "extent of the window: convolutions and pools"),
    Feature("stride", "elements", "largest stride of the window"),
    Feature("dilation", "elements", "largest dilation of the window"),
    Feature("channels_in", f"{_LOG}, count", "input channels per group of a convolution"),
    Feature("channels_out", f"{_LOG}, count", "output channels per group of a convolution"),
    Feature("column_tail", "fraction", "share of the last vector of 16 columns that is empty"),
    Feature("innermost", f"{_LOG}, elements", "extent of the result's last axis"),
    Feature("innermost_tail", "fraction", "share of the last vector of 16 along the last axis that is empty"),
    Feature("flops_per_element", "flop", "of an operator that is no anchor: division and transcendentals take many"),
    Feature("activations", "count", "operands that are computed or given, not constant"),
    Feature("constant", "0 or 1", "an operand is a weight"),
    Feature("view", "0 or 1", "the operator only renames bytes (reshape, squeeze, ...)"),
    Feature("producer", "code", "what makes the first activation: -1 outside, else 0.. as in `CLASSES`"),
    Feature("consumer", "code", "what takes the result first: -1 nothing inside, else 0.. as in `CLASSES`"),
    Feature("consumers", "count", "operators inside that take the result"),
    Feature("leaves", "0 or 1", "the result leaves the workload"),
    Feature("enters", "fraction", "share of the activation operands that come from outside"),
    Feature("epilogue", "count", "elementwise operators in a chain after an anchor; the place of an elementwise "
            "operator in a chain, 0 at its start"),
    Feature("after_anchor", "0 or 1", "an elementwise operator whose chain starts at an anchor"),
    Feature("threads", "log2, count", "threads of the deployment"),
)  # fmt: skip

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
)

ROW_NAMES = tuple(feature.name for feature in ROW_FEATURES)
TOTAL_NAMES = tuple(feature.name for feature in TOTAL_FEATURES)


def as_markdown() -> str:
    """The tables as the documentation shows them."""
    lines = []
    for title, features in (("Row", ROW_FEATURES), ("Total", TOTAL_FEATURES)):
        lines += [f"| {title} feature | unit | formula |", "|---|---|---|"]
        lines += [f"| `{f.name}` | {f.unit} | {f.formula} |" for f in features] + [""]
    return "\n".join(lines)
