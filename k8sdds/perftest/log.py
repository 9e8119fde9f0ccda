"""A log of RTI PerfTest, or of k8sdds-perftest, as data: what it says of its configuration, its results,
its end. stdout and stderr may be interleaved, in any grammar from 3.0 to 4.x.

Reading never raises and never guesses: what is not a whole row is no row, and every number in a `Result`
stands in the file. What speaks against trusting a log is listed in `problems`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from k8sdds.perftest import rows
from k8sdds.perftest.rows import Row
from k8sdds.perftest.settings import Settings

PUBLISHER, SUBSCRIBER = "publisher", "subscriber"
LATENCY, THROUGHPUT = "latency", "throughput"

MAX_BYTES = 64 * 1024 * 1024
"""Longer files are no logs of a trial: an hour of intervals each second is 0.3 MiB."""


@dataclass(frozen=True)
class Result:
    """The summary of one payload: quantities by the names of `k8sdds.perftest.rows`, latencies in µs."""

    kind: str
    """`latency` (printed by a publisher) or `throughput` (printed by a subscriber)."""
    payload_bytes: int
    values: dict[str, float]
    line: int
    """Where in the file, from 1."""


@dataclass(frozen=True)
class Log:
    """What one log says."""

    settings: Settings
    results: tuple[Result, ...] = ()
    intervals: int = 0
    """Rows of intervals, which only prove that it ran."""
    grammar: str | None = None
    """`text` (3.0 and legacy), `csv`, `json`; None where there is no result at all."""
    ended: bool = False
    """`Test ended.` was printed, or an equivalent of k8sdds-perftest."""
    exit_code: int | None = None
    """As kubectl told it, where it did."""
    errors: tuple[str, ...] = ()
    truncated: bool = False
    """The last line has no end."""
    problems: tuple[str, ...] = ()
    """Why its results cannot be trusted."""

    @property
    def role(self) -> str | None:
        """`publisher` or `subscriber`: stated, or told by what it printed."""
        stated = self.settings.role
        kinds = {result.kind for result in self.results}
        told = (
            {LATENCY: PUBLISHER, THROUGHPUT: SUBSCRIBER}.get(next(iter(kinds))) if len(kinds) == 1 else None
        )
        return stated or told

    @property
    def understood(self) -> bool:
        """Whether this is a log of PerfTest at all."""
        return bool(self.results or self.intervals or self.settings.known or self.errors)


_EXIT = re.compile(r"command terminated with exit code ([0-9]{1,3})\s*$")
_ERROR = re.compile(
    r"^\s*(?:\[Error\]|Error\b|ERROR\b|\[FATAL\]|Problem creating|Exception in|terminate called)"
)
_NO_LATENCY = re.compile(
    r"Batching cannot be used in a Latency test|Invalid |[Uu]nknown option|not recognized"
)


def read(data: bytes) -> Log:
    """The log in a file's bytes. See the module for what it promises."""
    if len(data) > MAX_BYTES or b"\0" in data:
        return Log(Settings(), problems=("not a text log",))
    text = data.decode("utf-8", errors="replace").replace("\r\n", "\n")
    lines = text.split("\n")
    # What follows the last line's end is torn, or nothing.
    torn = lines.pop()
    reader = _Reader(Settings.read(lines))
    for number, line in enumerate(lines, start=1):
        reader.line(number, line)
    if not reader.results and not reader.intervals and '"length"' in text:
        reader.document([*lines, torn])
    return reader.log(truncated=bool(torn.strip()) and reader.grammar != "json")


@dataclass
class _Reader:
    """Goes through the lines of one log."""

    settings: Settings
    results: list[Result] = field(default_factory=list)
    intervals: int = 0
    grammar: str | None = None
    ended: bool = False
    exit_code: int | None = None
    errors: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    header: rows.Header | None = None

    def line(self, number: int, line: str) -> None:
        """Take one whole line."""
        if line.startswith("Test ended."):
            self.ended = True
        elif found := _EXIT.search(line):
            self.exit_code = int(found[1])
        elif _ERROR.match(line) or _NO_LATENCY.search(line):
            self.errors.append(line.strip()[:300])
        elif header := rows.header(line):
            self.header = header
        elif row := rows.text_row(line):
            self._take(row, number, "text")
        elif "," in line and (row := self._csv(line)):
            self._take(row, number, "csv")
        elif rows.looks_torn(line):
            self.problems.append(
                f"line {number} begins like a row of results but is none: {line.strip()[:80]!r}"
            )

    def _csv(self, line: str) -> Row | None:
        if self.header is not None:
            row = self.header.row(line)
            if row is not None and row.summary:
                # One row follows the header of a summary; another one needs its own.
                self.header = None
            return row
        return rows.headless(line, self.settings.role)

    def _take(self, row: Row, number: int, grammar: str) -> None:
        if not row.summary:
            self.intervals += 1
        else:
            self._add(Result(row.kind, row.payload_bytes, row.values, number))
        self.grammar = self.grammar or grammar

    def _add(self, result: Result) -> None:
        for other in self.results:
            if (other.kind, other.payload_bytes) == (result.kind, result.payload_bytes):
                if other.values != result.values:
                    where = f"lines {other.line} and {result.line}"
                    self.problems.append(f"{where} sum up {result.payload_bytes} bytes differently")
                return
        self.results.append(result)

    def document(self, lines: list[str]) -> None:
        """Take a JSON document among the lines."""
        start = next((i for i, line in enumerate(lines, start=1) if '"length"' in line), 1)
        try:
            tests = _tests(lines)
        except (ValueError, RecursionError):
            self.problems.append("its JSON is torn or damaged")
            return
        for test in tests:
            self.intervals += rows.json_intervals(test)
            row = rows.json_row(test)
            if row is not None:
                self._add(Result(row.kind, row.payload_bytes, row.values, start))
        self.grammar = "json"

    def log(self, truncated: bool) -> Log:
        """What was read, with what the results themselves say against each other."""
        for result in self.results:
            if why := rows.implausible(result.kind, result.payload_bytes, result.values):
                self.problems.append(f"line {result.line}: {why}")
        return Log(
            self.settings, tuple(self.results), self.intervals, self.grammar, self.ended, self.exit_code,
            tuple(self.errors), truncated, tuple(self.problems),
        )  # fmt: skip


def _tests(lines: list[str]) -> Iterator[dict[str, Any]]:
    """The objects of `perftest` in a document, mended where PerfTest leaves out its beginning and end.

    Raises ValueError or RecursionError for anything else.
    """
    # Lines of JSON begin with punctuation; those of stderr with a word or a tab.
    kept = [line for line in lines if line.strip()[:1] in tuple('{}[],"')]
    text = "\n".join(kept).strip()
    try:
        data = json.loads(text)
    except ValueError:
        # C++ from 3.1 to 4.3 begins at "length" and ends with a brace too many.
        data = json.loads('{"perftest":[{' + text + "]}")
    tests = data.get("perftest") if isinstance(data, dict) else None
    if not isinstance(tests, list):
        raise ValueError("no list of results")
    return (test for test in tests if isinstance(test, dict))
