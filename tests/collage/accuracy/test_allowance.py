"""What the user grants is checked before anything is measured, each wrong thing in one clear line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from collage.accuracy.allowance import Allowance, Wish
from collage.errors import CollageError
from collage.frontend import load

_SAMPLES = [np.ones((1, 4), np.float32)] * 4


@pytest.fixture(scope="module")
def module() -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.nn.relu(x))
        builder.emit_func_output(out)
    return load(builder.get())


def _allowance(module: Any, **given: Any) -> Allowance:
    wish = Wish.of(**given)
    assert wish is not None
    return wish.allowance(module)


def test_nothing_granted_is_no_wish() -> None:
    assert Wish.of() is None


def test_half_of_the_samples_is_held_out(module: Any) -> None:
    found = _allowance(module, max_error=0.01, calibration=_SAMPLES, precisions=["int8"])
    assert len(found.searched_with) == len(found.judged_on) == 2
    assert found.wish.precisions == ("float32", "int8")


def test_validation_samples_take_the_place_of_held_out_ones(module: Any) -> None:
    found = _allowance(
        module, max_drop=0.1, metric=lambda o, y: 0.0, calibration=_SAMPLES, validation=(_SAMPLES[:3], [0, 1, 2])
    )
    assert len(found.searched_with) == 4 and len(found.judged_on) == 3
    assert found.key == "", "verdicts by a function cannot be told from those by another one"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"max_error": -0.1, "calibration": _SAMPLES}, "max_error is a number from 0"),
        ({"max_error": float("nan"), "calibration": _SAMPLES}, "max_error is a number from 0"),
        ({"max_error": "1%", "calibration": _SAMPLES}, "max_error is a number from 0"),
        ({"max_error": 0.01}, "needs calibration samples"),
        ({"calibration": _SAMPLES}, "calibration without max_error or max_drop"),
        ({"precisions": ["bf16"]}, "precisions without max_error"),
        ({"max_error": 0.01, "max_drop": 0.1, "calibration": _SAMPLES}, "give one of them"),
        ({"max_error": 0.01, "calibration": _SAMPLES, "precisions": ["int4"]}, "no precision is called int4"),
        ({"max_error": 0.01, "calibration": _SAMPLES[:1]}, "two samples at least"),
        ({"max_error": 0.01, "calibration": [np.ones((1, 5), np.float32)] * 2}, "sample 0"),
        ({"max_error": 0.01, "calibration": "missing.npz"}, "missing.npz"),
        ({"max_drop": 0.1, "calibration": _SAMPLES}, "needs metric and validation"),
        (
            {"max_drop": 0.1, "calibration": _SAMPLES, "metric": len, "validation": (_SAMPLES, [1])},
            "4 samples and 1 labels",
        ),
    ],
)
def test_what_is_wrong_is_one_clear_line(module: Any, given: dict[str, Any], says: str) -> None:
    with pytest.raises(CollageError, match=says) as caught:
        _allowance(module, **given)
    assert "\n" not in str(caught.value)
