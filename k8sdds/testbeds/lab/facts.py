"""Collect the provenance of this machine, and conditions that may disturb a measurement."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

from k8sdds.system import reading
from k8sdds.system.debian_release import os_release
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.paths import native_program
from k8sdds.testbeds.machine_cpu import SEPARATE_INTERRUPTS

REPORTED = (
    "kernel", "kernel_version", "architecture", "cpu_model", "cpu_count", "cpu_governor", "memory_bytes", "clocksource",
    "boot_id", "sysctls",
)  # fmt: skip
"""What the supervisor reports of a machine, here and in the pods of a cluster."""
PACKAGES = (
    "cyclonedds-dev",
    "libddsc0debian",
    "iproute2",
    "nftables",
    "iptables",
    "iputils-ping",
    "util-linux",
)

THROTTLED = Path("/sys/devices/platform/soc/soc:firmware/get_throttled")
"""Flags of a Raspberry Pi: bit 0 is set during under-voltage, bits 1 and 2 while its frequency is reduced."""

REPORT_TIMEOUT_S = 60
"""The report takes milliseconds on an idle machine."""
BUSY_LOAD = 0.5
"""Load average per core before a campaign, above which the machine is reported as busy."""


def machine() -> dict[str, Any]:
    """Return kernel, CPU, memory, clock source, sysctls, package versions, boot_id; None if unreadable."""
    reported = _reported()
    return {
        **{name: reported.get(name) for name in REPORTED},
        "os": os_release().get("PRETTY_NAME"),
        "packages": _packages(),
        "python": platform.python_version(),
        "perftest": perftest_version(),
        "programs_sha256": _programs(),
        "load_1m": os.getloadavg()[0],
    }


def separate_interrupts() -> bool | None:
    """Return whether the kernel leaves the time of interrupts out of that of processes; None if it is unknown."""
    known = _reported().get(SEPARATE_INTERRUPTS)
    return known if isinstance(known, bool) else None


@functools.cache
def _reported() -> dict[str, Any]:
    """Return what the supervisor reports of this machine; nothing if it is not built. Raises PrerequisiteError."""
    try:
        argv = [native_program("k8sdds-supervisor"), "facts"]
    except PrerequisiteError:
        return {}
    try:
        done = subprocess.run(argv, capture_output=True, timeout=REPORT_TIMEOUT_S)
        if done.returncode == 0:
            return reading.json_object(done.stdout, "its output")
        reason = done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}"
    except subprocess.TimeoutExpired:
        reason = f"it did not end within {REPORT_TIMEOUT_S} s"
    except OSError as error:
        reason = str(error)
    except reading.UnreadableError as error:
        reason = error.message
    raise PrerequisiteError(
        f"k8sdds-supervisor cannot report the facts of this machine: {reason}",
        "run the command again when the machine is idle, or build the programs again: k8sdds setup",
    )


def perftest_version() -> str | None:
    """Return the output of `k8sdds-perftest -version`; None if it is not built."""
    try:
        program = native_program("k8sdds-perftest")
        done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=10)
    except (PrerequisiteError, OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def interference() -> list[str]:
    """Return current conditions that may disturb a campaign on this machine, one message each."""
    conditions = throttling()
    cores = os.cpu_count() or 1
    load = os.getloadavg()[0]
    if load > BUSY_LOAD * cores:
        conditions.append(f"the machine is busy: load average {load:.1f} on {cores} cores before the start")
    governor = _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    if governor and governor != "performance":
        conditions.append(f"the CPU governor is {governor!r}; `performance` gives more stable results")
    return conditions


def throttling() -> list[str]:
    """Return a message if a Raspberry Pi is throttled or under-voltage now; else an empty list."""
    flags = _read(str(THROTTLED))
    if flags and int(flags, 16) & 0b111:
        return [f"the board is throttled or under-voltage ({flags}); use a better power supply or cooling"]
    return []


def cpu_mhz() -> float | None:
    """Return the current mean frequency of the cores in MHz; None if the kernel does not report it."""
    texts = [
        _read(str(path)) for path in Path("/sys/devices/system/cpu").glob("cpu*/cpufreq/scaling_cur_freq")
    ]
    mhz = [int(text) / 1000 for text in texts if text]
    return sum(mhz) / len(mhz) if mhz else None


def _programs() -> dict[str, str]:
    """Return the SHA-256 of each native program and backend, by file name."""
    try:
        folder = Path(native_program("k8sdds-perftest")).parent
    except PrerequisiteError:
        return {}
    files = [*folder.glob("k8sdds-*"), *folder.glob("libk8sdds-*.so"), *folder.glob("zenohd")]
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(files)}


def _read(path: str) -> str | None:
    try:
        return " ".join(Path(path).read_text().split())
    except OSError:
        return None


def _packages() -> dict[str, str]:
    if not shutil.which("dpkg-query"):
        return {}
    done = subprocess.run(
        ["dpkg-query", "--show", "--showformat", "${Package} ${Version}\n", *PACKAGES],
        capture_output=True,
        text=True,
    )
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
