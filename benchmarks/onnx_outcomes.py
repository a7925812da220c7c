"""Outcomes of the ONNX project's node tests, counted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

#: Of the tests that count on all backends together, the part that has to be right.
GOAL = 0.97


@dataclass(frozen=True)
class Outcome:
    """What became of one test.

    Attributes
    ----------
    narrow
        Whether it has values of bfloat16, of floats of eight bits or less, or of integers of four bits or less.
    """

    name: str
    outcome: str
    reason: str = ""
    narrow: bool = False


def goal_report(outcomes: Sequence[Outcome]) -> tuple[list[str], bool]:
    """Lines on the goal, and whether it is reached: of what ONNX Runtime passes, sequences, optional values and strings
    aside, `GOAL` is right, nothing is wrong, nothing crashes.

    Narrow types have a line of their own: ONNX Runtime's Python interface takes no arrays of them.
    """
    passed = [outcome for outcome in outcomes if outcome.outcome != "out"]
    counted, narrow = [o for o in passed if not o.narrow], [o for o in passed if o.narrow]
    counts = Counter(outcome.outcome for outcome in counted)
    share = counts["pass"] / max(len(counted), 1)
    lines = [
        f"{len(counted)} tests count: ONNX Runtime passes them, and they hold no sequences, optional values or strings",
        f"right: {counts['pass']} ({share:.1%}; goal {GOAL:.0%}), {_others(counted)}",
        f"apart, of bfloat16, float8, int4 and narrower: {len(narrow)}, "
        f"right: {sum(o.outcome == 'pass' for o in narrow)}, {_others(narrow)}",
    ]
    refused = Counter(o.reason.partition(":")[0] for o in passed if o.outcome in ("unsupported", "error"))
    lines.append("refused or failed, by operator: " + ", ".join(f"{k} ({n})" for k, n in refused.most_common()))
    return lines, share >= GOAL and not any(outcome.outcome in ("wrong", "crash") for outcome in passed)


def _others(outcomes: Sequence[Outcome]) -> str:
    counts = Counter(outcome.outcome for outcome in outcomes)
    words = {"unsupported": "refused", "error": "failed loudly", "wrong": "wrong", "crash": "crashed"}
    return ", ".join(f"{word}: {counts[kind]}" for kind, word in words.items())


def reason_class(outcome: Outcome) -> str:
    """The part of a reason that many tests share."""
    return re.sub(r"'[^']*'|\[[^]]*\]|\([^)]*\)|\d+", "…", outcome.reason)[:90]


def summarise(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Lines of a table: counts, and the reasons of refusals by frequency."""
    counts = Counter(outcome.outcome for outcome in outcomes)
    yield ", ".join(f"{kind}: {counts[kind]}" for kind in ("pass", "unsupported", "error", "wrong", "crash"))
    for reason, count in Counter(reason_class(o) for o in outcomes if o.outcome == "unsupported").most_common(15):
        yield f"  {count:4d}  {reason}"
