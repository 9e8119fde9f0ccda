"""Set the percentiles of latencies in a record; a percentile of too few values is null, with the reason."""

from __future__ import annotations

from collections.abc import Mapping

from k8sdds.results import histograms
from k8sdds.results.metrics import Metrics
from k8sdds.workloads.outputs import TrialOutputs

UNANSWERED_PERCENT = 1
"""Share of unanswered pings above which latencies have no meaning: their longest values are missing."""


def set_percentiles(
    record: Metrics,
    kind: str,
    count: int | None,
    values: Mapping[str, float | None],
    refused: str | None = None,
) -> None:
    """Set the keys `KIND_QUANTITY_us` of a record.

    Args:
        record: The record.
        kind: What was timed: `latency`, `loaded_latency` or `delay`.
        count: The number of values; None: unknown, so that no percentile is refused.
        values: The values in µs by quantity, such as `mean` and `p90`.
        refused: Why none of the values has a meaning.
    """
    setattr(record, f"{kind}_count", count)
    for quantity, value in values.items():
        key = f"{kind}_{quantity}_us"
        needed = histograms.needed(quantity)
        few = count is not None and count < needed
        reason = refused or (f"{count} values, {needed} are needed" if few else None)
        setattr(record, key, None if reason else value)
        if reason:
            record.missing = (record.missing or {}) | {key: reason}


def describe(**quantities: float | None) -> str:
    """Describe percentiles in µs, by name, in one line."""
    return ", ".join(
        f"{name} unknown (too few samples)" if value is None else f"{name} {value:.1f} µs"
        for name, value in quantities.items()
    )


def set_pings(record: Metrics, outputs: TrialOutputs) -> None:
    """Set how many pings were sent and how many of them were not answered."""
    sent, lost = _pings(outputs)
    if sent:
        record.pings, record.pings_unanswered = sent, lost
        record.pings_unanswered_percent = lost / sent * 100


def unanswered(outputs: TrialOutputs) -> str | None:
    """Return why latencies are not valid because too many pings were not answered, or None.

    A link that the experiment makes lossy loses pings on purpose.
    """
    sent, lost = _pings(outputs)
    percent = lost / sent * 100 if sent else 0
    if percent <= UNANSWERED_PERCENT or outputs.trial.cell.link.loss_percent:
        return None
    return (
        f"unanswered-pings: {lost} of {sent} pings ({percent:.3g} %) were not answered, more than"
        f" {UNANSWERED_PERCENT} %"
    )


def _pings(outputs: TrialOutputs) -> tuple[int, int]:
    """Return how many pings were sent and not answered; (0, 0) if a publisher did not count them."""
    sent = [summary["pings_sent"] for summary in outputs.publishers]
    lost = [summary["pongs_timed_out"] for summary in outputs.publishers]
    return (0, 0) if None in sent or None in lost else (sum(sent), sum(lost))
