"""Repetitions that are none: trials whose logs are those of another, byte for byte or number for number."""

from __future__ import annotations

from k8sdds.importing.records import Imported

TELLING = 8
"""Distinct numbers above 0 that must be equal before equal numbers count as a copy. Two runs at a fixed rate
share counts and rates, but not a whole table of latencies as well."""


def mark(trials: list[Imported]) -> list[str]:
    """Mark copies invalid, and say of each whose copy it is. The earlier of two counts, but one that the
    authors set aside never before one that they kept."""
    first_bytes: dict[str, Imported] = {}
    first_numbers: dict[tuple, Imported] = {}
    said = []
    for trial in sorted(trials, key=lambda trial: (not trial.record["valid"], trial.record["repetition"])):
        if not trial.numbers:
            continue
        digests = {name: source.sha256 for name, source in trial.bundle.logs.items() if name in trial.numbers}
        # The payload belongs to it: the trials of one scan share their logs.
        keys = {name: f"{digest} {trial.record['payload_bytes']}" for name, digest in digests.items()}
        numbers = tuple(sorted((name, values) for name, values in trial.numbers.items()))
        telling = {value for _, values in numbers for value in values if value > 0}
        same = {name: first_bytes[key] for name, key in keys.items() if key in first_bytes}
        if same:
            other = next(iter(same.values()))
            part = "" if len(same) == len(keys) else f" in {', '.join(same)}"
            _mark(trial, other, f"byte for byte{part}", said)
        elif len(telling) >= TELLING and numbers in first_numbers:
            _mark(trial, first_numbers[numbers], "number for number", said)
        for key in keys.values():
            first_bytes.setdefault(key, trial)
        first_numbers.setdefault(numbers, trial)
    return said


def _mark(trial: Imported, other: Imported, how: str, said: list[str]) -> None:
    if not trial.record["valid"]:
        return
    sentence = f"{how} that of {other.bundle.name}"
    if trial.record["network_label"] != other.record["network_label"]:
        other.record["warnings"].append(
            f"copied: the same log also stands for {trial.record['network_label']} in {trial.bundle.name}"
        )
        sentence += f", which is of {other.record['network_label']}"
    trial.invalidate(f"copy: its log is {sentence}")
    said.append(f"{trial.bundle.name} is {sentence}")
