"""Run Linux `perf`: record the stacks of all cores, and read the samples. Nothing else of k8sdds runs perf."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from k8sdds.system.errors import PrerequisiteError, Problem
from k8sdds.system.kernel_features import PERF, available, probe, remedy
from k8sdds.system.reading import UnreadableError, one_line

CYCLES, CPU_CLOCK = "cycles", "cpu-clock"
LOST = "lost"
"""Event of samples that perf could not record, because its buffer was full."""
MAX_HERTZ, MIN_HERTZ = 997, 49
"""Samples per second and core. Prime numbers, so that the samples do not follow periodic work."""
MAX_SAMPLES = 400_000
"""Samples that are recorded at most, which limits their rate on machines with many cores."""
MAX_FILE = "256M"
MAX_TEXT_BYTES = 1024**3
"""Largest output of `perf script`."""
MAX_FRAMES = 127
"""Frames of a stack; the kernel records no more by default."""
MAX_SYMBOL = 160
MAX_LINE_BYTES = 64 * 1024
SCRIPT_TIMEOUT_S = 180
START_TIMEOUT_S = 30
STOP_TIMEOUT_S = 20
KALLSYMS = Path("/proc/kallsyms")

_SAMPLE = re.compile(
    r"(?P<process>\S.*?)\s+(?P<pid>-?\d+)/-?\d+\s+\[\d+\]\s+(?P<s>\d+)\.(?P<ns>\d{9}):\s+(?P<period>\d+)\s+(?P<event>[\w-]+)"
)
_LOST = re.compile(r".*\s(?P<s>\d+)\.(?P<ns>\d{9}):\s+PERF_RECORD_LOST lost (?P<count>\d{1,18})$")
_FRAME = re.compile(r"\s+(?P<address>[0-9a-f]+) (?P<symbol>.*) \((?P<object>.*)\)$")
_KERNEL_HALF = 1 << 63


@dataclass(frozen=True)
class Sample:
    """What a core did at one moment. Both stacks begin with the outermost function."""

    process: str
    pid: int
    monotonic_ns: int
    event: str
    weight: int
    """What the sample stands for: nanoseconds of `cpu-clock`, cycles, or the number of lost samples until then."""
    user: tuple[str, ...]
    """`FUNCTION (FILE)`; only the file if the function is unknown."""
    kernel: tuple[str, ...]


def problems() -> list[Problem]:
    """Return why k8sdds cannot record profiles of this machine. Makes no changes."""
    if not available(PERF):
        return [Problem(f"--profile needs perf: {probe([PERF]).missing[PERF.name]}", remedy(PERF))]
    if _symbols_hidden():
        return [
            Problem(
                "--profile needs the names of the kernel's functions, which /proc/kallsyms hides",
                "run as root, or: sudo sysctl kernel.kptr_restrict=0",
            )
        ]
    return []


def _symbols_hidden() -> bool:
    with contextlib.suppress(OSError), open(KALLSYMS) as file:
        return int(file.readline().split()[0], 16) == 0
    return True


@cache
def events() -> tuple[str, ...]:
    """Return the sampled events: `cpu-clock`, and `cycles` where the machine has a PMU that counts them."""
    # `perf record` silently samples the clock instead of an event that the machine does not have.
    argv = ["perf", "stat", "--all-cpus", "--field-separator", ",", "--event", CYCLES, "--", "true"]
    counted = subprocess.run(argv, capture_output=True, text=True, env=_environment(), timeout=30)
    return (CYCLES, CPU_CLOCK) if re.search(r"^\d+,", counted.stderr, re.MULTILINE) else (CPU_CLOCK,)


def hertz(duration_s: float) -> int:
    """Return the samples per second and core of a recording of this length."""
    cores = os.cpu_count() or 1
    return max(MIN_HERTZ, min(MAX_HERTZ, round(MAX_SAMPLES / (cores * max(duration_s, 1)))))


@contextlib.contextmanager
def recording(path: Path, per_s: int, deadline_s: float) -> Iterator[None]:
    """Record the stacks of all cores while the context lasts, at most until the deadline.

    The recording also ends if this process is killed.
    """
    commands, enable = os.pipe()
    enabled, acknowledge = os.pipe()
    argv = [
        "setpriv", "--pdeathsig", "TERM", "perf", "record", "--quiet", "--all-cpus", "--call-graph", "fp",
        "--freq", str(per_s), "--clockid", "mono", "--event", ",".join(events()), "--max-size", MAX_FILE,
        "--no-buildid", "--no-buildid-cache", "--delay", "-1", "--control", f"fd:{commands},{acknowledge}",
        "--output", str(path), "--", "sleep", f"{deadline_s:.0f}",
    ]  # fmt: skip
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        env=_environment(), start_new_session=True, pass_fds=(commands, acknowledge),
    )  # fmt: skip
    os.close(commands)
    os.close(acknowledge)
    try:
        _enable(enable, enabled)
        yield
    finally:
        messages = _stop(process)
        os.close(enable)
        os.close(enabled)
    # perf ends `sleep`, and then as `sleep` ended, or by the signal that it received.
    if process.returncode not in (0, -signal.SIGINT, -signal.SIGTERM) or not path.exists():
        raise PrerequisiteError(f"perf record failed: {messages or process.returncode}", "run: k8sdds doctor")


def _enable(commands: int, acknowledgments: int) -> None:
    """Return when perf records. On a busy machine it needs seconds for its list of processes before it does."""
    with contextlib.suppress(BrokenPipeError):
        os.write(commands, b"enable\n")
    # If perf has ended, the pipe is readable too, and `recording` reports why.
    select.select([acknowledgments], [], [], START_TIMEOUT_S)


def _stop(process: subprocess.Popen[bytes]) -> str:
    process.send_signal(signal.SIGINT)
    try:
        _, stderr = process.communicate(timeout=STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        _, stderr = process.communicate()
    return one_line(stderr.decode(errors="replace"), 300)


def samples(path: Path) -> Iterator[Sample]:
    """Yield the samples of a recording. Raises UnreadableError, also if perf prints more than `MAX_TEXT_BYTES`."""
    argv = [
        "timeout", str(SCRIPT_TIMEOUT_S), "perf", "script", "--input", str(path), "--show-lost-events", "--ns",
        "--no-inline", "--max-stack", str(MAX_FRAMES), "--fields", "comm,pid,tid,cpu,time,period,event,ip,sym,dso",
    ]  # fmt: skip
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=_environment()
    )
    assert process.stdout is not None
    try:
        yield from parse(_lines(process))
        if process.wait():
            raise UnreadableError(f"{path}: perf script ended with exit code {process.returncode}")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _lines(process: subprocess.Popen[bytes]) -> Iterator[str]:
    assert process.stdout is not None
    left = MAX_TEXT_BYTES
    while line := process.stdout.readline(MAX_LINE_BYTES):
        left -= len(line)
        if left < 0:
            raise UnreadableError("perf script reported too much", "measure for a shorter time")
        yield line.decode("utf-8", "replace").rstrip("\n")


def parse(lines: Iterator[str]) -> Iterator[Sample]:
    """Yield the samples in the output of `perf script`. Lines of other forms are ignored."""
    head: re.Match[str] | None = None
    user: list[str] = []
    kernel: list[str] = []
    for line in lines:
        if not line.strip():
            if head and (user or kernel):
                yield _sample(head, user, kernel)
            head, user, kernel = None, [], []
        elif lost := _LOST.match(line):
            yield Sample("", 0, _time_ns(lost), LOST, int(lost["count"]), (), ())
        elif head is None:
            head = _SAMPLE.match(line.strip())
        elif (frame := _FRAME.match(line)) and len(user) + len(kernel) < MAX_FRAMES:
            (kernel if _in_kernel(frame) else user).append(_name(frame))
    if head and (user or kernel):
        yield _sample(head, user, kernel)


def _in_kernel(frame: re.Match[str]) -> bool:
    return len(frame["address"]) <= 16 and int(frame["address"], 16) >= _KERNEL_HALF


def _name(frame: re.Match[str]) -> str:
    symbol = one_line(frame["symbol"], MAX_SYMBOL)
    if _in_kernel(frame):
        return symbol
    file = one_line(frame["object"].rsplit("/", 1)[-1], MAX_SYMBOL)
    return file if symbol == "[unknown]" else f"{symbol} ({file})"


def _sample(head: re.Match[str], user: list[str], kernel: list[str]) -> Sample:
    return Sample(
        process=one_line(head["process"], MAX_SYMBOL),
        pid=int(head["pid"]),
        monotonic_ns=_time_ns(head),
        event=head["event"],
        weight=int(head["period"][:18]),
        user=_without_repetitions(reversed(user)),
        kernel=tuple(reversed(kernel)),
    )


def _time_ns(head: re.Match[str]) -> int:
    return int(head["s"]) * 10**9 + int(head["ns"])


def _without_repetitions(frames: Iterator[str]) -> tuple[str, ...]:
    """Return frames without addresses of no file, and each file with unknown functions once."""
    result: list[str] = []
    for frame in frames:
        if frame != "[unknown]" and result[-1:] != [frame]:
            result.append(frame)
    return tuple(result)


def _environment() -> dict[str, str]:
    """Return the environment of perf: without the user's configuration and translations."""
    return os.environ | {"PERF_CONFIG": "/dev/null", "LC_ALL": "C.UTF-8", "DEBUGINFOD_URLS": ""}
