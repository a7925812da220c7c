"""`torch.export` programs become canonical Relax that computes what PyTorch computes."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from frontend_cases import assert_canonical, assert_close, operators, run

from collage.errors import UnboundDimensionError, UnsupportedOperatorError
from collage.frontend import input_specs, load, output_specs
from collage.frontend.torch_program import is_exported_program
from collage.graph.description import describe_module, structure_hash

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


class Convolutions(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convolution = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.dropout = torch.nn.Dropout()
        self.upwards = torch.nn.ConvTranspose2d(8, 6, 2, stride=2, bias=False)
        self.norm2 = torch.nn.BatchNorm2d(6)
        self.linear = torch.nn.Linear(6, 5)
        for norm in (self.norm, self.norm2):
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2.0)

    def forward(self, x: Any) -> Any:
        x = self.dropout(torch.nn.functional.relu6(self.norm(self.convolution(x))))
        x = torch.relu(self.norm2(self.upwards(x)))
        return self.linear(torch.nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


class Attention(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(20, 16)
        layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu")
        self.layers = torch.nn.TransformerEncoder(layer, 1)

    def forward(self, tokens: Any) -> Any:
        hidden = self.embedding(tokens)
        return self.layers(hidden), hidden


def export(module: Any, *inputs: Any, **options: Any) -> Any:
    return torch.export.export(module.eval(), inputs, **options)


def test_convolutions() -> None:
    module, x = Convolutions(), torch.randn(2, 3, 8, 8)
    mod = load(export(module, x))
    assert_canonical(mod)
    assert operators(mod) == {
        "nn.conv2d": 1,
        "nn.conv2d_transpose": 1,
        "clip": 1,
        "nn.relu": 1,
        "mean": 1,
        "reshape": 1,
        "matmul": 1,
        "add": 3,
    }
    assert [str(spec) for spec in (*input_specs(mod), *output_specs(mod))] == [
        "x: float32[2, 3, 8, 8]",
        "output0: float32[2, 5]",
    ]
    assert_close(run(mod, {"x": x.numpy()}), [module(x).detach().numpy()])


def test_attention_with_two_outputs() -> None:
    module, tokens = Attention(), torch.randint(0, 20, (2, 6))
    mod = load(export(module, tokens))
    assert_canonical(mod)
    assert len(output_specs(mod)) == 2
    assert_close(run(mod, {"tokens": tokens.numpy()}), [part.detach().numpy() for part in module.eval()(tokens)])


def test_dynamic_dimensions_are_bound() -> None:
    module, x = Convolutions(), torch.randn(2, 3, 8, 8)
    program = export(module, x, dynamic_shapes={"x": {0: torch.export.Dim("batch", min=1, max=16)}})
    with pytest.raises(UnboundDimensionError, match=r"dimension 0 .* of input 'x'"):
        load(program)
    mod = load(program, {"x": (5, 3, 8, 8)})
    assert_canonical(mod)
    assert structure_hash(describe_module(mod)) == structure_hash(
        describe_module(load(export(module, torch.randn(5, 3, 8, 8))))
    )


def test_unsupported_operators_are_named() -> None:
    class Rare(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x.nonzero()

    with pytest.raises(UnsupportedOperatorError, match=r"nonzero.default \(node 'nonzero'\)"):
        load(export(Rare(), torch.randn(3)))


def test_nothing_is_an_exported_program_before_torch_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch.export")
    assert not is_exported_program(np.zeros(3))
