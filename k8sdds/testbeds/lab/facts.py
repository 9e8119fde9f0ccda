"""Facts about this machine that a reviewer of a result asks for, and what disturbs it while it measures."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.paths import native_program

SYSCTLS = (
    "net.core.rmem_max", "net.core.rmem_default", "net.core.wmem_max", "net.core.wmem_default",
    "net.core.netdev_max_backlog", "net.core.netdev_budget",
    "net.ipv4.udp_mem", "net.ipv4.ipfrag_high_thresh", "net.ipv4.ipfrag_time",
    "kernel.sched_rt_runtime_us", "kernel.randomize_va_space",
)  # fmt: skip
PACKAGES = ("cyclonedds-dev", "libddsc0debian", "iproute2", "nftables", "iputils-ping", "util-linux")

THROTTLED = Path("/sys/devices/platform/soc/soc:firmware/get_throttled")
"""A Raspberry Pi's flags: bit 0 under-voltage now, bits 1 and 2 frequency capped or throttled now."""

BUSY_LOAD = 0.5
"""Load average per core, before a campaign starts, from which the machine counts as busy with other work."""


def machine() -> dict[str, Any]:
    """Kernel, CPU, memory, clock source, sysctls, package versions and boot_id; null where unreadable."""
    return {
        "kernel": platform.release(),
        "kernel_version": platform.version(),
        "architecture": platform.machine(),
        "os": _os_name(),
        "cpu_model": _cpu_model(),
        "cpu_count": os.cpu_count(),
        "cpu_governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "clocksource": _read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "boot_id": _read("/proc/sys/kernel/random/boot_id"),
        "sysctls": {key: _read(f"/proc/sys/{key.replace('.', '/')}") for key in SYSCTLS},
        "packages": _packages(),
        "python": platform.python_version(),
        "perftest": perftest_version(),
        "programs_sha256": _programs(),
        "load_1m": os.getloadavg()[0],
    }


def perftest_version() -> str | None:
    """What `k8sdds-perftest -version` says; None where it is not built."""
    try:
        program = native_program("k8sdds-perftest")
        done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=10)
    except (PrerequisiteError, OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def interference() -> list[str]:
    """What may disturb a campaign on this machine now, each as a sentence."""
    found = throttling()
    cores = os.cpu_count() or 1
    load = os.getloadavg()[0]
    if load > BUSY_LOAD * cores:
        found.append(f"the machine is busy: load average {load:.1f} on {cores} cores before the start")
    governor = _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    if governor and governor != "performance":
        found.append(f"the CPU governor is {governor!r}; `performance` gives steadier numbers")
    return found


def throttling() -> list[str]:
    """Whether the board throttles itself now, as a sentence; empty where it does not or cannot tell."""
    flags = _read(str(THROTTLED))
    if flags and int(flags, 16) & 0b111:
        return [f"the board is throttled or under-voltage ({flags}); use a better supply or cooling"]
    return []


def cpu_mhz() -> float | None:
    """Mean frequency of the cores now in MHz; None where the kernel does not say."""
    found = [
        _read(str(path)) for path in Path("/sys/devices/system/cpu").glob("cpu*/cpufreq/scaling_cur_freq")
    ]
    known = [int(text) / 1000 for text in found if text]
    return sum(known) / len(known) if known else None


def _programs() -> dict[str, str]:
    """File name to SHA-256 of our native programs and backends."""
    try:
        folder = Path(native_program("k8sdds-perftest")).parent
    except PrerequisiteError:
        return {}
    files = [*folder.glob("k8sdds-*"), *folder.glob("libk8sdds-*.so")]
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(files)}


def _read(path: str) -> str | None:
    try:
        return " ".join(Path(path).read_text().split())
    except OSError:
        return None


def _os_name() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None


def _cpu_model() -> str | None:
    for line in _read_lines("/proc/cpuinfo"):
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model"):
            return value.strip()
    return None


def _read_lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _packages() -> dict[str, str]:
    if not shutil.which("dpkg-query"):
        return {}
    done = subprocess.run(
        ["dpkg-query", "--show", "--showformat", "${Package} ${Version}\n", *PACKAGES],
        capture_output=True,
        text=True,
    )
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
