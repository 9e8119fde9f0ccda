"""Show the progress of campaigns, of the steps of a long task, and of the actions of a plan."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from k8sdds.cli.terminal import console, live, print_note, print_step, quiet
from k8sdds.system.numbers import format_duration

if TYPE_CHECKING:
    from k8sdds.deploy.actions import Action
    from k8sdds.model.trial import Trial
    from k8sdds.results.record import TrialRecord
    from k8sdds.system.grouping import Row

PAUSE_S = 30
"""Without a terminal: time between two lines about the same step."""
_TAIL = "delay_p99_us"
SMOOTHING = 0.2
"""Weight of the latest trial in the expected duration of the next one."""


class CampaignProgress:
    """Observes a campaign: a live table on a terminal, plain lines otherwise."""

    def __init__(self, baseline: str, expected_trial_s: float) -> None:
        self._baseline = baseline
        self._trial_s = expected_trial_s
        self._started_at = 0.0
        self._attempts: list[Row] = []
        self._status = ""
        self._live: Any = None
        self._ended: set[str] = set()
        self._warnings: list[str] = []

    def __enter__(self) -> Self:
        if console().is_terminal and not quiet():
            from rich.live import Live

            # Without automatic refresh, only `_draw` draws, and it runs between trials.
            self._live = Live(console=console(), auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        from k8sdds.report.formats import count, kinds

        if self._live is not None:
            self._live.stop()
        for text, number in kinds(self._warnings):
            self.note(f"! {number} of {count(len(self._ended), 'trial')}: {text}")

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
        from k8sdds.results import tidy

        took = time.monotonic() - self._started_at
        self._trial_s += SMOOTHING * (took - self._trial_s)
        self._attempts += tidy.of([record.as_json()])
        if not record.valid:
            self.note(f"{trial.describe()}: attempt {record.attempt} is invalid: {record.reason}")
        elif self._live is None:
            self.note(f"    {_result(record)}")
        if record.valid:
            self._keep_warnings(trial, record)

    def _keep_warnings(self, trial: Trial, record: TrialRecord) -> None:
        from k8sdds.results.metrics import METRICS

        self._ended.add(trial.trial_id)
        texts = list(record.warnings or ())
        # No warning of the record states that this percentile is unknown.
        if why := (record.missing or {}).get(_TAIL):
            texts.append(f"{METRICS[_TAIL].title} unknown: {why}")
        self._warnings += dict.fromkeys(texts)

    def note(self, text: str) -> None:
        """Print a permanent line."""
        print_step(text)

    def _draw(self, status: str) -> None:
        from rich.console import Group
        from rich.text import Text

        from k8sdds.report.terminal import results_so_far

        parts: list[Any] = [results_so_far(self._attempts, self._baseline)] if self._attempts else []
        self._live.update(Group(*parts, Text(status, style="bold")), refresh=True)


def _result(record: TrialRecord) -> str:
    from k8sdds import workloads
    from k8sdds.results.profile import ProfileSummary

    if record.ip_fragments_per_sample is not None:
        return f"{record.ip_fragments_per_sample} IP fragments for each sample"
    if record.profile:
        return ProfileSummary.model_validate(record.profile).describe()
    return workloads.find(str(record.test)).describe(record)


class Steps:
    """Print what a task reports, and while it runs, how long the last step has taken.

    On a terminal, this is a line below the output; else a line every `PAUSE_S`.
    """

    def __init__(self) -> None:
        self._step = self._detail = ""
        self._since_s = time.monotonic()
        self._shown = contextlib.ExitStack()
        self._is_shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.pause()

    def __call__(self, line: str) -> None:
        """Print the start of a step, or a note."""
        self._step, self._detail, self._since_s = line, "", time.monotonic()
        print_note(line)
        self._show()

    def detail(self, text: str) -> None:
        """Replace the detail of the current step, such as the file that is compiled."""
        self._detail = text
        self._show()

    def share(self, done: int, total: int) -> None:
        """Show how much of a file was read, in bytes, as the detail."""
        self.detail(f"{done / 1e9:.1f} of {total / 1e9:.1f} GB ({min(100, 100 * done // max(1, total))} %)")

    def pause(self) -> None:
        """Show nothing until the next step, because a question is asked or the task has ended."""
        self._shown.close()
        self._is_shown = False

    def _show(self) -> None:
        if self._is_shown or quiet():
            return
        self._is_shown = True
        if console(stderr=True).is_terminal:
            self._shown.enter_context(live(self._status, stderr=True))
            return
        ended = threading.Event()
        threading.Thread(target=self._repeat, args=(ended,), daemon=True).start()
        self._shown.callback(ended.set)

    def _repeat(self, ended: threading.Event) -> None:
        while not ended.wait(PAUSE_S):
            if self._elapsed_s() >= PAUSE_S:
                print_note(f"{'' if self._detail else f'{self._step}: '}{self._status()}")

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._since_s

    def _status(self) -> Any:
        from rich.text import Text

        text = f"{format_duration(self._elapsed_s())}  {self._detail}".strip()
        return Text(text, no_wrap=True, overflow="ellipsis", style="dim")


class ActionProgress:
    """Draw the progress of actions, which run in several threads: one live line per node on a terminal."""

    def __init__(self, actions: Sequence[Action]) -> None:
        from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = ("{task.fields[node]}", MofNCompleteColumn(), "{task.description}", TimeElapsedColumn())
        texts = (TextColumn(one, markup=False) if isinstance(one, str) else one for one in columns)
        shown = console().is_terminal and not quiet()
        self._progress = Progress(*texts, console=console(), transient=True, disable=not shown)
        totals = Counter(action.node for action in actions)
        self._nodes = {
            node: self._progress.add_task("waiting for other nodes", start=False, total=total, node=node)
            for node, total in totals.items()
        }

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def started(self, action: Action) -> None:
        """Show that an action started on its node."""
        node = self._nodes[action.node]
        done = self._progress.tasks[node].completed
        self._progress.reset(node, completed=int(done), description=f"{action.phase}: {action.title}")

    def ended(self, action: Action, seconds: float, error: Exception | None) -> None:
        """Print a permanent line for an action that succeeded or failed."""
        node = self._nodes[action.node]
        self._progress.update(node, advance=1, description="waiting for other nodes")
        if self._progress.tasks[node].finished:
            self._progress.update(node, description="done")
        outcome = f"{seconds:.1f} s" if error is None else f"failed after {seconds:.1f} s"
        print_step(f"{action.node}: {action.phase}: {action.title} ({outcome})")
