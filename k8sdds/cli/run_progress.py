"""Show the progress of a campaign.

The terminal is redrawn only between trials, so that drawing does not disturb a measurement.
"""

from __future__ import annotations

import re
import time
from typing import Any

from k8sdds import workloads
from k8sdds.cli.terminal import console, print_step, quiet
from k8sdds.model.trial import Trial
from k8sdds.report.formats import count
from k8sdds.results.metrics import METRICS
from k8sdds.results.profile import ProfileSummary
from k8sdds.results.record import TrialRecord
from k8sdds.system.numbers import format_duration

_NUMBER = r"\d+(?:\.\d+)?"
_TAIL = "delay_p99_us"
SMOOTHING = 0.2
"""Weight of the latest trial in the expected duration of the next one."""


class Progress:
    """Observes a campaign: a live table on a terminal, plain lines otherwise."""

    def __init__(self, baseline: str, expected_trial_s: float) -> None:
        self._baseline = baseline
        self._trial_s = expected_trial_s
        self._started_at = 0.0
        self._records: list[dict[str, Any]] = []
        self._status = ""
        self._live: Any = None
        self._ended: set[str] = set()
        self._warnings: dict[str, dict[str, str]] = {}
        """By kind of warning: the text by trial."""

    def __enter__(self) -> Progress:
        if console().is_terminal and not quiet():
            from rich.live import Live

            # Without automatic refresh, only `_draw` draws, and it runs between trials.
            self._live = Live(console=console(), auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
        for texts in self._warnings.values():
            alike = "" if len(set(texts.values())) == 1 else ", such as"
            text = max(texts.values(), key=lambda text: [float(n) for n in re.findall(_NUMBER, text)])
            self.note(f"! {len(texts)} of {count(len(self._ended), 'trial')}{alike}: {text}")

    def prepared(self, seconds: float) -> None:
        """Report that all networks are up."""
        if seconds > 0.05:
            self.note(f"networks built and verified in {seconds:.1f} s")

    def trial_starts(self, trial: Trial, done: int, total: int) -> None:
        """Show the next trial and the remaining time."""
        self._started_at = time.monotonic()
        left = format_duration((total - done) * self._trial_s)
        self._status = f"[{done + 1}/{total}] {trial.describe()}"
        if self._live is None:
            self.note(f"{self._status} … ({left} left)")
        else:
            self._draw(f"{self._status}   {left} left")

    def trial_ended(self, trial: Trial, record: TrialRecord) -> None:
        """Record the result; print why an attempt is invalid. Warnings are printed at the end, each kind once."""
        took = time.monotonic() - self._started_at
        self._trial_s += SMOOTHING * (took - self._trial_s)
        self._records.append(record.as_json())
        if not record.valid:
            self.note(f"{trial.describe()}: attempt {record.attempt} is invalid: {record.reason}")
        elif self._live is None:
            self.note(f"    {_result(record)}")
        if record.valid:
            self._keep_warnings(trial, record)

    def _keep_warnings(self, trial: Trial, record: TrialRecord) -> None:
        self._ended.add(trial.trial_id)
        texts = list(record.warnings or ())
        # No warning of the record states that this percentile is unknown.
        if why := (record.missing or {}).get(_TAIL):
            texts.append(f"{METRICS[_TAIL].title} unknown: {why}")
        for text in texts:
            # Texts of one kind differ in their numbers.
            kind = re.sub(_NUMBER, "", text)
            self._warnings.setdefault(kind, {})[trial.trial_id] = text

    def note(self, text: str) -> None:
        """Print a permanent line."""
        print_step(text)

    def _draw(self, status: str) -> None:
        from rich.console import Group
        from rich.text import Text

        from k8sdds.report.terminal import results_so_far

        parts: list[Any] = [results_so_far(self._records, self._baseline)] if self._records else []
        self._live.update(Group(*parts, Text(status, style="bold")), refresh=True)


def _result(record: TrialRecord) -> str:
    if record.ip_fragments_per_sample is not None:
        return f"{record.ip_fragments_per_sample} IP fragments for each sample"
    if record.profile:
        return ProfileSummary.model_validate(record.profile).describe()
    return workloads.find(str(record.test)).describe(record)
