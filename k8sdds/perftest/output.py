"""What a participant printed, as data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EXIT_REASONS = {
    2: ("usage", "perftest refused its command line"),
    3: ("no-match", "the participants did not find each other"),
    4: ("peer-lost", "another participant stopped answering"),
    5: ("no-samples", "no sample arrived"),
    6: ("middleware", "the middleware failed"),
    124: ("deadline", "the participant overstayed its deadline"),
    125: ("not-started", "the participants were not ready together"),
    126: ("not-started", "the program cannot be executed"),
    127: ("not-started", "the program was not found"),
    130: ("interrupted", "the participant was interrupted"),
    143: ("terminated", "the participant was terminated"),
}
"""Exit code of a participant or its supervisor to (reason, sentence)."""


@dataclass(frozen=True)
class Summary:
    """One participant's own account: the `k8sdds` object of its JSON output (docs/perftest.md)."""

    data: dict[str, Any]

    def __getitem__(self, key: str) -> Any:
        return self.data.get(key)

    def latency_us(self, kind: str, quantity: str) -> float | None:
        """`latency_ns` or `loaded_latency_ns`, one of its quantities, in microseconds."""
        values = self.data.get(kind)
        if not isinstance(values, dict) or values.get("count") == 0:
            return None
        value = values.get(quantity)
        return None if value is None else value / 1000


def read(stdout: Path) -> Summary | None:
    """The summary in a participant's stdout, or None where there is no whole one."""
    try:
        data = json.loads(stdout.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    ours = data.get("k8sdds") if isinstance(data, dict) else None
    return Summary(ours) if isinstance(ours, dict) else None


def failure(exit_code: int, stderr: Path, message: str = "") -> tuple[str, str]:
    """Why a participant failed: a short word, and a sentence with the last it said."""
    reason, sentence = EXIT_REASONS.get(
        exit_code, ("crashed", f"the participant ended with code {exit_code}")
    )
    if exit_code > 128 and exit_code not in EXIT_REASONS:
        sentence = f"the participant was killed by signal {exit_code - 128}"
    said = message or _last_line(stderr)
    return reason, f"{sentence}: {said}" if said else sentence


def _last_line(path: Path) -> str:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1].strip()[:300] if lines else ""
