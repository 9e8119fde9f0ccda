"""Set the percentiles of latencies in a record; one with too few episodes above it is null, with the reason."""

from __future__ import annotations

from collections.abc import Mapping

from k8sdds.results import histograms
from k8sdds.results.histograms import NOTHING_ARRIVED, VALUES_BEYOND
from k8sdds.results.metrics import Metrics
from k8sdds.system.numbers import number
from k8sdds.workloads.outputs import TrialOutputs

MISSING_PERCENT = 1
"""Share of missing values above which mean and maximum have no meaning: the longest ones may be missing."""


def set_percentiles(
    record: Metrics,
    kind: str,
    count: int | None,
    values: Mapping[str, float | None],
    missing_percent: float = 0,
    episodes: Mapping[str, int] | None = None,
) -> None:
    """Set the keys `KIND_QUANTITY_us` of a record from values in µs, whose `count` is None if it is unknown.

    `missing_percent` is the share of samples or pings without a value. They may have been the slowest ones, so a
    percentile P is refused if it is more than half of those above it, (100 − P)/2 %. `episodes` has the number of
    episodes above each percentile; None if the order of the values is unknown, so that only their number decides.
    """
    setattr(record, f"{kind}_count", count)
    for quantity, value in values.items():
        key = f"{kind}_{quantity}_us"
        needed = histograms.needed(quantity)
        most = (
            (100 - histograms.PERCENTILES[quantity]) / 2
            if quantity in histograms.PERCENTILES
            else MISSING_PERCENT
        )
        above = (episodes or {}).get(quantity) if quantity in histograms.PERCENTILES else None
        if above is not None:
            record.tail_episodes = (record.tail_episodes or {}) | {key: above}
        reason = None
        if count is not None and count < needed:
            reason = f"{count} values, {needed} are needed"
        elif above is not None and above < VALUES_BEYOND:
            reason = f"{above} episodes above it, {VALUES_BEYOND} are needed ({count} values)"
        if count == 0:
            reason = NOTHING_ARRIVED
        elif missing_percent > most:
            reason = f"{missing_percent:.3g} % of the values are missing, at most {most:.3g} % may be"
        setattr(record, key, None if reason else value)
        if reason:
            record.missing = (record.missing or {}) | {key: reason}


def describe(**quantities: float | None) -> str:
    """Describe percentiles in µs, by name, in one line."""
    return ", ".join(
        f"{name} unknown" if value is None else f"{name} {number(value)} µs"
        for name, value in quantities.items()
    )


def set_pings(record: Metrics, outputs: TrialOutputs) -> None:
    """Set how many pings were sent and how many of them were not answered."""
    sent, lost = _pings(outputs)
    if sent:
        record.pings, record.pings_unanswered = sent, lost
        record.pings_unanswered_percent = lost / sent * 100


def unanswered_percent(outputs: TrialOutputs) -> float:
    """Return the share of pings that were not answered; 0 if they were not counted.

    A link that the experiment makes lossy loses pings whatever their latency, so those count as answered.
    """
    sent, lost = _pings(outputs)
    return lost / sent * 100 if sent and not outputs.trial.cell.link.loses_packets else 0.0


def warnings(outputs: TrialOutputs) -> list[str]:
    """Return a warning if so many pings were not answered that some percentiles are unknown."""
    sent, lost = _pings(outputs)
    percent = unanswered_percent(outputs)
    if percent <= MISSING_PERCENT:
        return []
    return [f"unanswered-pings: {lost} of {sent} pings ({percent:.3g} %) were not answered"]


def _pings(outputs: TrialOutputs) -> tuple[int, int]:
    """Return how many pings were sent and not answered; (0, 0) if a publisher did not count them."""
    sent = [summary["pings_sent"] for summary in outputs.publishers]
    lost = [summary["pongs_timed_out"] for summary in outputs.publishers]
    return (0, 0) if None in sent or None in lost else (sum(sent), sum(lost))
