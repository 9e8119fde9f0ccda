"""The small table of a campaign that is still running. Plain Python: it is drawn several times a second."""

from __future__ import annotations

import json
import math
from typing import Any

from rich import box
from rich.table import Table

from k8sdds.analysis.conditions import CONDITION, UNIT

_COLUMNS = (("throughput_mbps", "throughput"), ("latency_p90_us", "p90 latency"))


def results_so_far(attempts: list[dict[str, Any]], baseline: str) -> Table:
    """One row per network: valid trials, invalid attempts, and the mean change against the baseline.

    The change is the geometric mean of x/b over all pairs (same condition, same repetition) so far, without
    interval: it says how the campaign goes, not what it found.
    """
    valid = {a.get("trial_id"): a for a in attempts if a.get("valid") is True}
    labels = list(dict.fromkeys([baseline, *(_label(a) for a in attempts)]))
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column("network", overflow="fold")
    table.add_column("valid", justify="right")
    table.add_column("invalid", justify="right")
    for _, title in _COLUMNS:
        table.add_column(f"{title} vs {baseline}", justify="right")
    for label in labels:
        ours = [a for a in valid.values() if _label(a) == label]
        bad = sum(1 for a in attempts if _label(a) == label and a.get("valid") is not True)
        changes = [
            "baseline" if label == baseline else _change(valid, label, baseline, name) for name, _ in _COLUMNS
        ]
        table.add_row(label, str(len(ours)), str(bad) if bad else "", *changes, style="" if ours else "dim")
    return table


def _change(valid: dict[Any, dict[str, Any]], label: str, baseline: str, name: str) -> str:
    theirs = {_pair(a): a.get(name) for a in valid.values() if _label(a) == baseline}
    logs = []
    for attempt in valid.values():
        value, base = attempt.get(name), theirs.get(_pair(attempt))
        if _label(attempt) == label and value and base and value > 0 and base > 0:
            logs.append(math.log(value / base))
    if not logs:
        return "–"
    return f"{100 * math.expm1(math.fsum(logs) / len(logs)):+.0f} % ({len(logs)})"


def _pair(attempt: dict[str, Any]) -> str:
    return json.dumps([attempt.get(name) for name in (*CONDITION, "repetition")], sort_keys=True)


def _label(attempt: dict[str, Any]) -> str:
    return str(attempt.get(UNIT) or attempt.get("network") or "unnamed")
