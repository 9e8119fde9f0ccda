"""Detect duplicate trials among imported logs."""

from __future__ import annotations

from typing import Any

from k8sdds.importing.records import Imported
from k8sdds.model.reason import Reason

DISTINCT_NUMBERS = 8
"""How many distinct numbers above 0 two trials must share before k8sdds considers one a copy of the other. Two
runs at a fixed rate share counts and rates, but not a whole table of latencies."""


def mark(trials: list[Imported]) -> list[str]:
    """Mark duplicates as invalid; return a message for each that names the original.

    The earlier trial is the original. An invalid trial is never the original of a valid trial, and a backup is
    never the original of a regular trial.
    """
    first_by_digest: dict[str, Imported] = {}
    first_by_numbers: dict[tuple[Any, ...], Imported] = {}
    messages: list[str] = []
    # The trial that counts is before its copies.
    for trial in sorted(
        trials, key=lambda it: (not it.record.valid, it.set_aside, it.record.repetition or 0)
    ):
        if not trial.numbers:
            continue
        digests = {name: source.sha256 for name, source in trial.bundle.logs.items() if name in trial.numbers}
        # The payload is part of the key, because the trials of one scan share their logs.
        keys = {name: f"{digest} {trial.record.payload_bytes}" for name, digest in digests.items()}
        numbers = tuple(sorted((name, values) for name, values in trial.numbers.items()))
        distinct = {value for _, values in numbers for value in values if value > 0}
        same = {name: first_by_digest[key] for name, key in keys.items() if key in first_by_digest}
        if same:
            original = next(iter(same.values()))
            part = "" if len(same) == len(keys) else f" ({', '.join(same)})"
            _mark(trial, original, f"is a byte-for-byte copy{part} of", messages)
        elif len(distinct) >= DISTINCT_NUMBERS and numbers in first_by_numbers:
            _mark(trial, first_by_numbers[numbers], "has the same numbers as", messages)
        for key in keys.values():
            first_by_digest.setdefault(key, trial)
        first_by_numbers.setdefault(numbers, trial)
    return messages


def _mark(trial: Imported, original: Imported, how: str, messages: list[str]) -> None:
    if not trial.record.valid:
        return
    message = f"{how} {original.bundle.name}"
    if trial.record.network_label != original.record.network_label:
        original.warn(
            f"copied: the same log also represents {trial.record.network_label} in {trial.bundle.name}"
        )
        message += f", which is a log of {original.record.network_label}"
    trial.invalidate(Reason("copy", f"its log {message}"))
    messages.append(f"{trial.bundle.name} {message}")
