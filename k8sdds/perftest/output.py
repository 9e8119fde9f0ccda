"""Read the summary that k8sdds-perftest prints, and explain exit codes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from k8sdds.model import reason
from k8sdds.model.reason import Reason
from k8sdds.perftest import documents
from k8sdds.system import reading
from k8sdds.system.shapes import fits

PEER_LOST = 4
"""Exit code of a participant whose peer stopped responding."""
DEADLINE = 124
"""Exit code of a supervisor whose participant exceeded its deadline."""
NOT_STARTED = 125
"""Exit code of a supervisor that did not start its participant."""
OUT_OF_MEMORY = 253
"""Exit code of a participant whose pod was ended because it exceeded its memory limit."""

EXIT_REASONS = {
    DEADLINE: ("deadline", "the participant exceeded its deadline"),
    NOT_STARTED: ("not-started", "the participants were not ready together"),
    126: ("not-started", "the program cannot be executed"),
    127: ("not-started", "the program was not found"),
    OUT_OF_MEMORY: ("out-of-memory", "the pod exceeded its memory limit"),
    130: ("interrupted", "the participant was interrupted"),
    143: ("terminated", "the participant was terminated"),
}
"""Maps an exit code of any participant or its supervisor to (reason code, explanation)."""

PERFTEST_REASONS = {
    2: ("usage", "perftest rejected its command line"),
    3: (reason.NO_MATCH, "the participants did not discover each other"),
    PEER_LOST: (reason.PEER_LOST, "another participant stopped responding"),
    5: (reason.NO_SAMPLES, "no sample arrived"),
    6: ("middleware", "the middleware failed"),
}
"""The same for the exit codes of perftest alone."""


@dataclass(frozen=True)
class Summary:
    """What a participant reported: the `k8sdds` object of its JSON output (docs/reference/perftest.md)."""

    data: dict[str, Any]

    def __getitem__(self, key: str) -> Any:
        return self.data.get(key)

    @property
    def exit_reason(self) -> str:
        """Why the participant ended."""
        return (self.data.get("exit") or {}).get("reason") or ""

    def latency_us(self, kind: str, quantity: str) -> float | None:
        """Return a quantity of `latency_ns` or `loaded_latency_ns` in microseconds, or None."""
        values = self.data.get(kind)
        if not isinstance(values, dict) or values.get("count") == 0:
            return None
        value = values.get(quantity)
        return None if value is None else value / 1000


def read(stdout: Path) -> Summary | None:
    """Return the summary in a participant's stdout, or None if it is missing, incomplete or of another shape."""
    try:
        summary = reading.json_file(stdout).get("k8sdds")
    except (FileNotFoundError, reading.UnreadableError):
        return None
    return Summary(summary) if isinstance(summary, dict) and fits(documents.Summary, summary) else None


def failure(exit_code: int, details: str, own: Mapping[int, tuple[str, str]]) -> Reason:
    """Return why a participant failed, by `EXIT_REASONS` and the exit codes of its program."""
    reasons = {**own, **EXIT_REASONS}
    code, explanation = reasons.get(exit_code, ("crashed", f"the participant exited with code {exit_code}"))
    if exit_code > 128 and exit_code not in reasons:
        explanation = f"the participant was killed by signal {exit_code - 128}"
    return Reason(code, f"{explanation}: {details}" if details else explanation)


def last_line(path: Path) -> str:
    """Return the last line of a participant's output; empty if there is none."""
    try:
        lines = reading.data(path).decode("utf-8", "replace").strip().splitlines()
    except (OSError, reading.UnreadableError):
        return ""
    return reading.one_line(lines[-1], 300) if lines else ""
