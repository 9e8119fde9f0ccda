"""Read a log of RTI PerfTest or k8sdds-perftest: its configuration, its results and its end.

stdout and stderr may be interleaved, and the format may be that of any version from 3.0 to 4.x. Reading never raises
an error and never guesses: incomplete rows are ignored, and every number in a `Result` occurs in the file. `problems`
lists the reasons why a log cannot be trusted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from k8sdds.model.trial import PUBLISHER, SUBSCRIBER, Role
from k8sdds.perftest import rows
from k8sdds.perftest.rows import LATENCY, THROUGHPUT, Row
from k8sdds.perftest.settings import Settings

_ROLE_OF_KIND: dict[str, Role] = {LATENCY: PUBLISHER, THROUGHPUT: SUBSCRIBER}
"""The role that prints each kind of result: publishers print latencies, and subscribers print throughput."""

MAX_BYTES = 64 * 1024 * 1024
"""Larger files are not logs of a trial: the log of one hour with an interval every second has 0.3 MiB."""


@dataclass(frozen=True)
class Result:
    """The summary for one payload. Quantities have the names in `k8sdds.perftest.rows`; latencies are in µs."""

    kind: str
    """`latency` (printed by a publisher) or `throughput` (printed by a subscriber)."""
    payload_bytes: int
    values: dict[str, float]
    line: int
    """Line number in the file, from 1."""


@dataclass(frozen=True)
class Log:
    """The content of a log."""

    settings: Settings
    results: tuple[Result, ...] = ()
    intervals: int = 0
    """Number of rows for intervals. They prove only that the program ran."""
    grammar: str | None = None
    """`text` (3.0 and legacy), `csv` or `json`, or None if there is no result."""
    ended: bool = False
    """Whether `Test ended.` was printed."""
    exit_code: int | None = None
    """The exit code that kubectl printed, or that is in the JSON output of k8sdds-perftest."""
    errors: tuple[str, ...] = ()
    truncated: bool = False
    """Whether the last line is incomplete."""
    problems: tuple[str, ...] = ()
    """Why the results cannot be trusted."""

    @property
    def role(self) -> Role | None:
        """The participant's role, as stated in the log or, if missing, derived from the kind of its results."""
        if self.settings.role:
            return self.settings.role
        kinds = {result.kind for result in self.results}
        return _ROLE_OF_KIND.get(kinds.pop()) if len(kinds) == 1 else None

    @property
    def understood(self) -> bool:
        """Whether this is a log of PerfTest at all."""
        return bool(self.results or self.intervals or self.settings.known or self.errors)


_EXIT = re.compile(r"command terminated with exit code ([0-9]{1,3})\s*$")
_ERROR = re.compile(
    r"^\s*(?:\[Error\]|Error\b|ERROR\b|\[FATAL\]|Problem creating|Exception in|terminate called)"
)
_REJECTED_OPTION = re.compile(
    r"Batching cannot be used in a Latency test|Invalid |[Uu]nknown option|not recognized"
)


def read(data: bytes) -> Log:
    """Return the content of a log file. Never raises an error."""
    if len(data) > MAX_BYTES or b"\0" in data:
        return Log(Settings(), problems=("not a text log",))
    text = data.decode("utf-8", errors="replace").replace("\r\n", "\n")
    lines = text.split("\n")
    # The text after the last line end is an incomplete line or empty.
    rest = lines.pop()
    reader = _Reader(Settings.read(lines))
    for number, line in enumerate(lines, start=1):
        reader.line(number, line)
    if not reader.results and not reader.intervals and '"length"' in text:
        reader.document([*lines, rest])
    return reader.log(truncated=bool(rest.strip()) and reader.grammar != "json")


@dataclass
class _Reader:
    """Reads a log line by line."""

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
        """Read a complete line."""
        if line.startswith("Test ended."):
            self.ended = True
        elif match := _EXIT.search(line):
            self.exit_code = int(match[1])
        elif _ERROR.match(line) or _REJECTED_OPTION.search(line):
            self.errors.append(line.strip()[:300])
        elif header := rows.header(line):
            self.header = header
        elif row := rows.text_row(line):
            self._take(row, number, "text")
        elif "," in line and (row := self._csv(line)):
            self._take(row, number, "csv")
        elif rows.looks_torn(line):
            self.problems.append(f"line {number} is an incomplete row of results: {line.strip()[:80]!r}")

    def _csv(self, line: str) -> Row | None:
        if self.header is not None:
            row = self.header.row(line)
            if row is not None and row.summary:
                # Exactly one row follows the header of a summary.
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
                    self.problems.append(f"{where} have different summaries for {result.payload_bytes} bytes")
                return
        self.results.append(result)

    def document(self, lines: list[str]) -> None:
        """Read a JSON document among the lines."""
        start = next((i for i, line in enumerate(lines, start=1) if '"length"' in line), 1)
        try:
            tests, own = _parsed(lines)
        except (ValueError, RecursionError):
            self.problems.append("its JSON is incomplete or damaged")
            return
        delays = own.get("one_way_ns")
        if own:
            self.settings = Settings.of_output(own)
            code = (own.get("exit") or {}).get("code") if isinstance(own.get("exit"), dict) else None
            self.exit_code = code if isinstance(code, int) else self.exit_code
        for test in tests:
            self.intervals += rows.json_intervals(test)
            row = rows.json_row(test)
            if row is not None:
                values = row.values | (rows.delays(delays) if isinstance(delays, dict) else {})
                self._add(Result(row.kind, row.payload_bytes, values, start))
        self.grammar = "json"

    def log(self, truncated: bool) -> Log:
        """Return the log, with implausible results among its problems."""
        for result in self.results:
            if why := rows.implausible(result.kind, result.payload_bytes, result.values):
                self.problems.append(f"line {result.line}: {why}")
        return Log(
            self.settings, tuple(self.results), self.intervals, self.grammar, self.ended, self.exit_code,
            tuple(self.errors), truncated, tuple(self.problems),
        )  # fmt: skip


def _parsed(lines: list[str]) -> tuple[Iterator[dict[str, Any]], dict[str, Any]]:
    """Return the objects in `perftest` of a JSON document, and its object `k8sdds`, which is empty if it has none.

    Repairs a document whose beginning and end are missing. Raises ValueError if it has no list of results,
    RecursionError if it is nested too deeply.
    """
    # Lines of JSON begin with punctuation, lines of stderr with a word or a tab.
    kept = [line for line in lines if line.strip()[:1] in tuple('{}[],"')]
    text = "\n".join(kept).strip()
    try:
        data = json.loads(text)
    except ValueError:
        # The output of 3.1 to 4.3 (C++) begins at "length" and ends with an extra brace.
        data = json.loads('{"perftest":[{' + text + "]}")
    tests = data.get("perftest") if isinstance(data, dict) else None
    if not isinstance(tests, list):
        raise ValueError("no list of results")
    own = data.get("k8sdds")
    return (test for test in tests if isinstance(test, dict)), own if isinstance(own, dict) else {}
