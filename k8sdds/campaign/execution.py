"""Compare how participants were to run (scheduler, locked memory, DSCP) with how they ran."""

from __future__ import annotations

from typing import Any

from k8sdds.model.trial import Cell
from k8sdds.workloads import TrialOutputs


def is_set(cell: Cell) -> bool:
    """Return whether a cell sets how its participants run."""
    return bool(cell.realtime_priority or cell.lock_memory or cell.dscp)


def observed(outputs: TrialOutputs) -> dict[str, dict[str, Any]]:
    """Return by participant what the supervisor read from the kernel, and the DSCP of the participant's sockets."""
    result = {}
    for participant, summary in outputs.summaries.items():
        seen = outputs.meters_of(participant).get("execution") or {}
        transport = (summary["transport"] if summary else None) or {}
        result[participant.name] = {**seen, "dscp": transport.get("dscp")}
    return result


def not_effective(outputs: TrialOutputs) -> str | None:
    """Return which setting was not in effect in a participant, or None."""
    cell = outputs.trial.cell
    for name, seen in observed(outputs).items() if is_set(cell) else ():
        threads = list(seen.get("threads") or {})
        if cell.realtime_priority and threads != [f"fifo {cell.realtime_priority}"]:
            return f"not-real-time: the threads of {name} ran as {', '.join(threads) or 'unknown'}"
        if cell.lock_memory and not seen.get("locked_bytes"):
            return f"not-locked: {name} locked {seen.get('locked_bytes') or 0} bytes of memory"
        if cell.dscp and seen["dscp"] != [cell.dscp]:
            return f"not-marked: the sockets of {name} have the DSCP {seen['dscp']}"
    return None
