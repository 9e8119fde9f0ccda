"""Read the files that describe a link: delays, recorded losses and rates in Mahimahi's format."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from k8sdds.model.impairments import MAX_DELAY_US, Delay, FromFile, Loss, M, Rate, with_files
from k8sdds.system import reading
from k8sdds.system.errors import InputError
from k8sdds.system.strict import MAX_RATE_MBIT, Strict

MAX_VALUES = 1_000_000
"""Most values of a file: 17 minutes at 1000 packets per second."""
MAX_TRACE_MS = 86_400_000
"""Latest time in a trace: as long as the longest trial."""
OPPORTUNITY_BYTES = 1504
"""What passes at each time of a trace: a packet of 1500 bytes and the header of Mahimahi's tunnel."""
JITTERS = 4
"""Standard deviations above the mean delay that few packets exceed."""


def delays(text: str) -> tuple[float, ...]:
    """Return the delays of a file in µs, one on each line: the n-th packet has the n-th, then from the start."""
    values = []
    for number, line in _lines(text):
        if not re.fullmatch(r"\d{1,15}(\.\d{1,9})?", line) or float(line) > MAX_DELAY_US:
            raise reading.unexpected(number, line, f"a delay in microseconds, 0 to {MAX_DELAY_US:,}")
        values.append(float(line))
    return tuple(values)


def losses(text: str) -> str:
    """Return the pattern of a file: `1` for each lost packet and `0` for others, in any number of lines."""
    pattern = []
    for number, line in _lines(text):
        if wrong := re.search("[^01]", "".join(line.split())):
            raise reading.unexpected(number, wrong[0], "0 (arrives) or 1 (is lost)")
        pattern.append("".join(line.split()))
    joined = "".join(pattern)
    _require_count(len(joined))
    if "0" not in joined:
        raise ValueError("every packet is lost: use `outages`")
    return joined


def trace(text: str) -> tuple[int, ...]:
    """Return the times of a trace of Mahimahi, in milliseconds: a packet passes at each; it repeats after the last."""
    times: list[int] = []
    for number, line in _lines(text):
        if not re.fullmatch(r"\d{1,9}", line) or int(line) > MAX_TRACE_MS:
            raise reading.unexpected(number, line, f"a time in milliseconds, 0 to {MAX_TRACE_MS:,}")
        if times and int(line) < times[-1]:
            raise ValueError(f"line {number}: {line} is before the previous time, {times[-1]}")
        times.append(int(line))
    if times and not times[-1]:
        raise ValueError("the last time is 0: it is the length of the trace")
    if times and (mbit := mean_mbit(tuple(times))) > MAX_RATE_MBIT:
        raise ValueError(f"the mean rate is {mbit:,.0f} Mbit/s: at most {MAX_RATE_MBIT:,}")
    return tuple(times)


def mean_mbit(times_ms: tuple[int, ...]) -> float:
    """Return the mean rate of a trace."""
    return len(times_ms) * OPPORTUNITY_BYTES * 8 / (times_ms[-1] * 1000)


PARSERS: Mapping[type[FromFile], Callable[[str], Any]] = {Delay: delays, Loss: losses, Rate: trace}


def values(part: FromFile) -> Any:
    """Return the values of the file of an impairment, which must have its SHA-256; they are read once."""
    return _values(part.file, part.sha256, type(part))


@lru_cache(maxsize=64)
def _values(file: str, sha256: str, kind: type[FromFile]) -> Any:
    found, content = _read(file, kind)
    if found != sha256:
        raise InputError(
            f"{file} has another content than when the campaign started (SHA-256 {found[:12]}, not {sha256[:12]})",
            "restore the file, or start a new campaign",
        )
    return content


def checked(model: M) -> M:
    """Return a link, or a choice of links, with the SHA-256 and the absolute path of each file that it names."""

    def place(part: FromFile) -> dict[str, str]:
        if not part.file:
            raise InputError(f"link: the file with SHA-256 {part.sha256[:12]} is not named", "set `file`")
        found, _ = _read(part.file, type(part))
        if part.sha256 not in ("", found):
            raise InputError(
                f"{part.file} has the SHA-256 {found}, not {part.sha256}",
                "leave out sha256, or restore the file",
            )
        _values(part.file, found, type(part))
        return {"file": str(Path(part.file).absolute()), "sha256": found}

    return with_files(model, place)


def longest_us(delay: Delay) -> float:
    """Return what few packets exceed of a delay. Raises like `values`."""
    return max(values(delay)) if delay.is_from_file else delay.mean_us + JITTERS * delay.jitter_us


def files_of(link: Strict) -> list[FromFile]:
    """Return the impairments of a link that files describe."""
    found: list[FromFile] = []

    def note(part: FromFile) -> dict[str, str]:
        found.append(part)
        return {}

    with_files(link, note)
    return found


def _read(file: str, kind: type[FromFile]) -> tuple[str, Any]:
    """Return the SHA-256 and the values of a file."""
    with reading.explaining_file("link", file, "name a file, relative to the file with the link"):
        content = reading.data(file, reading.MAX_BYTES)
        parsed = PARSERS[kind](content.decode("utf-8"))
        _require_count(len(parsed))
    return hashlib.sha256(content).hexdigest(), parsed


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line that is not empty or a comment."""
    count = 0
    for number, line in enumerate(text.splitlines(), 1):
        line = line.partition("#")[0].strip()
        if line:
            count += 1
            _require_count(count)
            yield number, line


def _require_count(count: int) -> None:
    if not count:
        raise ValueError("it has no values")
    if count > MAX_VALUES:
        raise ValueError(f"it has more than {MAX_VALUES:,} values")
