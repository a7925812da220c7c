"""The device's description: stable, without anything private, and different where costs may differ."""

import dataclasses
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from collage.errors import CollageError
from collage.runtime import device_info as device

X86 = """processor : 0
vendor_id : GenuineIntel
cpu family : 6
model : 85
model name : Intel(R) Xeon(R) Gold 6130
stepping : 4
cpu MHz : {mhz}
flags : fpu sse2 avx2 avx512f {pseudo}
"""
ARM = "processor : {n}\nFeatures : fp asimd {extra}\nCPU implementer : 0x41\nCPU part : {part}\n"


def describe_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cpuinfo: str | None) -> device.DeviceInfo:
    path = tmp_path / "cpuinfo"
    path.unlink(missing_ok=True)
    if cpuinfo is not None:
        path.write_text(cpuinfo)
    monkeypatch.setattr(device, "_CPUINFO", path)
    return device.describe_device()


def test_the_fingerprint_is_the_same_in_another_process() -> None:
    code = "from collage.runtime.device_info import describe_device; print(describe_device().fingerprint)"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == device.describe_device().fingerprint


def test_the_fingerprint_does_not_depend_on_the_affinity_of_the_process() -> None:
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("this system has no affinity masks")
    before, mask = device.describe_device().fingerprint, os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(mask)})
    try:
        assert device.describe_device().fingerprint == before
    finally:
        os.sched_setaffinity(0, mask)


def test_clock_and_kernel_flags_do_not_change_the_fingerprint_and_vector_instructions_do(monkeypatch, tmp_path) -> None:
    one = describe_with(monkeypatch, tmp_path, X86.format(mhz=2100.0, pseudo="ibrs ssbd"))
    two = describe_with(monkeypatch, tmp_path, X86.format(mhz=3700.1, pseudo="ibrs cpuid_fault"))
    three = describe_with(monkeypatch, tmp_path, X86.format(mhz=2100.0, pseudo="avx512_bf16"))
    assert one.model == "Intel(R) Xeon(R) Gold 6130 (GenuineIntel family 6 model 85 stepping 4)"
    assert one.features == ("avx2", "avx512f", "sse2")
    assert one.fingerprint == two.fingerprint != three.fingerprint


@pytest.mark.parametrize(
    "change", [{"cores": 96}, {"model": "another"}, {"os": "Plan 9"}, {"arch": "riscv64"}, {"kind": "cuda"}]
)
def test_what_costs_depend_on_changes_the_fingerprint(change: dict[str, object]) -> None:
    here = device.describe_device()
    assert dataclasses.replace(here, **change).fingerprint != here.fingerprint


def test_memory_size_is_told_but_is_not_identity() -> None:
    here = device.describe_device()
    assert here.memory > 0
    assert dataclasses.replace(here, memory=here.memory - 4096).fingerprint == here.fingerprint


def test_a_big_little_machine_names_both_and_has_the_common_instructions(monkeypatch, tmp_path) -> None:
    both = ARM.format(n=0, extra="sve", part="0xd46") + "\n" + ARM.format(n=1, extra="", part="0xd4d")
    info = describe_with(monkeypatch, tmp_path, both)
    assert "part 0xd46" in info.model and "part 0xd4d" in info.model
    assert info.features == ("asimd", "fp")


def test_without_proc_the_platform_module_answers(monkeypatch, tmp_path) -> None:
    info = describe_with(monkeypatch, tmp_path, None)
    assert info.model and info.features == ()
    assert info.fingerprint.startswith(f"cpu-{platform.machine()}-")


def test_on_macos_the_brand_is_asked_for(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(device, "_sysctl", lambda name: {"machdep.cpu.brand_string": "Apple M3"}[name])
    assert describe_with(monkeypatch, tmp_path, None).model == "Apple M3"


def test_a_containers_limits_count(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(device, "_CGROUP", tmp_path)
    assert device.describe_device().cores == 64
    (tmp_path / "cpuset.cpus.effective").write_text("0-3,8-11,16\n")
    assert device.describe_device().cores == 9
    (tmp_path / "cpu.max").write_text("250000 100000\n")
    assert device.describe_device().cores == 3
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert device.describe_device().cores == 9


def test_caches_are_counted_once_and_no_more_than_processors_can_use(monkeypatch, tmp_path) -> None:
    """Four processors in two pairs: each has its L1, a pair shares an L2, all share an L3."""
    for cpu in range(4):
        pair = "0-1" if cpu < 2 else "2-3"
        for index, (level, size, shared) in enumerate([(1, "32K", str(cpu)), (2, "1024K", pair), (3, "32M", "0-3")]):
            folder = tmp_path / f"cpu{cpu}" / "cache" / f"index{index}"
            folder.mkdir(parents=True)
            for name, text in (("level", str(level)), ("size", size), ("shared_cpu_list", shared)):
                (folder / name).write_text(f"{text}\n")
    (tmp_path / "cpu0" / "cache" / "index9").mkdir()
    monkeypatch.setattr(device, "_CACHES", tmp_path)
    monkeypatch.setattr(device, "_usable_cores", lambda: 4)
    assert device.describe_device().cache == 34 << 20
    fingerprint = device.describe_device().fingerprint
    monkeypatch.setattr(device, "_CACHES", tmp_path / "none")
    assert device.describe_device().cache == 0 and device.describe_device().fingerprint == fingerprint
    monkeypatch.setattr(device, "_CACHES", tmp_path)
    monkeypatch.setattr(device, "_usable_cores", lambda: 1)
    assert device.describe_device().cache == 33 << 20


def test_the_description_is_json_and_names_no_path() -> None:
    text = json.dumps(device.describe_device().as_dict())
    assert "/home" not in text and platform.node() not in json.loads(text).values()


def test_another_kind_is_a_clear_error() -> None:
    with pytest.raises(CollageError, match="kind 'tpu'"):
        device.describe_device("tpu")
