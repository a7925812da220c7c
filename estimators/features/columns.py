"""Columns of features: those of work, and what a feature of a whole workload or of a kernel is.

A workload is described three times. Its *work* consists of amounts that add up over operators, borders and the call; an
analytic model adds up seconds from them. Its *totals* describe the whole (`estimators.features.workload`). *Details*
describe its kernels (`estimators.features.kernel`). From totals and details trees learn the error of the sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from estimators.features.operator import ANCHORS, CLASSES

#: Any change of a feature's name, order, unit or formula raises it; models of another version are refused.
FEATURE_VERSION = 3

#: Kinds of kernels: an operator class; elementwise operators that follow an anchor; windows that slide.
KERNEL_KINDS = (*CLASSES, "epilogue", "pool")
#: All that takes time in a workload: kernels, views, the tensors that cross its border, by the class of the operator
#: that takes or makes them (libraries may change their layout there), and the call itself.
KINDS = (*KERNEL_KINDS, "view", *(f"entry_{cls}" for cls in CLASSES), *(f"exit_{cls}" for cls in CLASSES), "call")
_KERNEL_TERMS = ("calls", "flops", "input", "weight", "output")
_BORDER_TERMS = ("calls", "bytes")


_What = TypeVar("_What")


@dataclass(frozen=True)
class Feature(Generic[_What]):
    """One feature: a column of the trees' input, with its value for a workload or a kernel."""

    name: str
    unit: str
    formula: str
    value: Callable[[_What], float]


def logged(name: str, unit: str, formula: str, value: Callable[[_What], float]) -> Feature[_What]:
    """A feature whose value is seen on a logarithmic scale."""
    return Feature(name, f"log2(1 + x), {unit}", formula, lambda what: math.log2(1.0 + value(what)))


class Term(NamedTuple):
    """A kind of amount that adds up."""

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

TERMS: tuple[Term, ...] = (
    Term("calls", "microsecond", "one for each operator, tensor or call of the kind"),
    Term("flops", "second at peak", "2 M N K groups of an anchor; else elements x flops per element"),
    Term("input", "second at memory bandwidth", "activations read"),
    Term("weight", "second at memory bandwidth", "constants read"),
    Term("output", "second at memory bandwidth", "results written"),
    Term("bytes", "second at memory bandwidth", "the tensors that enter or leave"),
)
WORK_NAMES = tuple(work.name for work in WORK)
