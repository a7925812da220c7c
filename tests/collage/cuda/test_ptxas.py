"""What the assembler's report says of kernels."""

from __future__ import annotations

from collage.backends.cuda.ptxas import KernelUsage, complaint, kernel_usages, losses

REPORT = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first_kernel' for 'sm_90'
ptxas info    : Function properties for first_kernel
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 4096 bytes smem, 400 bytes cmem[0]
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to a call
ptxas info    : Compiling entry function 'second_kernel' for 'sm_90'
ptxas info    : Function properties for __internal_trig_reduction_slowpathf
    40 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Function properties for second_kernel
    24 bytes stack frame, 16 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 255 registers, used 0 barriers, 24 bytes cumulative stack size
"""


def test_every_kernel_has_its_registers_stack_and_spills() -> None:
    assert kernel_usages(REPORT) == [
        KernelUsage("first_kernel", 32, 0, 0, 4096),
        KernelUsage("second_kernel", 255, 24, 24, 0),
    ]


def test_spills_and_lost_speed_are_complained_of() -> None:
    assert losses(REPORT * 2) == [
        "(C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to a call"
    ]
    assert complaint(REPORT).startswith("24 bytes of registers are spilled; (C7510)")
    assert complaint(REPORT.splitlines()[0]) == ""
