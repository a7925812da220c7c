"""TVM's kernels through NVRTC, which needs no device, with the headers of the wheels: what users have."""

from __future__ import annotations

import pytest
from test_cuda_lower import ARCH, CASES, one_partition, source

from benchmarks.gpu.nvrtc import compile_source
from collage.backends.cuda.headers import missing_headers

pytestmark = pytest.mark.cuda_build


@pytest.fixture(autouse=True)
def wheels_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No toolkit, whatever this machine has."""
    monkeypatch.setenv("CUDA_PATH", "/nowhere")
    assert missing_headers() == ""


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_compiles_without_spills_and_with_all_digits_of_float32(name: str) -> None:
    made = compile_source(source(one_partition(*CASES[name])), ARCH)
    assert made.cubin and ".entry" in made.ptx
    assert made.kernels and not any(kernel.stack or kernel.spilled for kernel in made.kernels)
    assert not made.imprecise


def test_fast_math_makes_one_instruction_of_a_function_that_is_left_to_it() -> None:
    """So that the test above can fail."""
    text = 'extern "C" __global__ void k(float* x) { x[threadIdx.x] = tanhf(x[threadIdx.x]) + sinf(x[threadIdx.x]); }'
    assert compile_source(text, ARCH).imprecise == ["tanh.approx", "sin.approx"]


def test_a_product_in_float16_has_instructions_of_the_tensor_cores() -> None:
    """In bfloat16 DLight has no schedule for them (TVM 0.27): libraries take such products."""
    shapes, _, body = ((128, 256), (256, 128)), "", CASES["product"][2]
    assert compile_source(source(one_partition(shapes, "float16", body)), ARCH).tensor_core_instructions
    assert not compile_source(source(one_partition(shapes, "bfloat16", body)), ARCH).tensor_core_instructions
    assert not compile_source(source(one_partition(shapes, "float32", body)), ARCH).tensor_core_instructions


def test_what_does_not_compile_says_why() -> None:
    with pytest.raises(RuntimeError, match="undefined"):
        compile_source('extern "C" __global__ void k() { nothing(); }', ARCH)
