"""Read a run folder once, for all parts of a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from k8sdds.analysis import capacities, conditions, contrast, limit, overhead
from k8sdds.analysis.conditions import UNIT
from k8sdds.analysis.statistics import confidence_of
from k8sdds.model.reason import Reason
from k8sdds.perftest.settings import STAND_IN
from k8sdds.report import formats
from k8sdds.report.settings import THROUGHPUT, Curve, Setting, group
from k8sdds.results import machine, tidy
from k8sdds.results.run_folder import EXPERIMENT, RunFolder
from k8sdds.system import yaml_text
from k8sdds.system.errors import InputError
from k8sdds.system.grouping import Row, by_columns
from k8sdds.workloads import of_metric

INTERVAL = "95 % interval (t on log ratios, paired within repetition)"

PROTECTION_GROUP = ("link", "subscribers", "publishers", "middleware", "reliability", "transport")
"""Columns that are constant within one table or figure of the overhead of protection."""

STAND_IN_NOTE = "a stand-in ran in place of RTI PerfTest: no result here is a result of Connext"


def protected_name(row: Row) -> str:
    """Return the network, followed by its DDS Security level if it has one."""
    level = row["security"]
    return row[UNIT] if level in (None, "none") else f"{row[UNIT]} {level}"


@dataclass
class Content:
    """All data of a report."""

    run: RunFolder
    campaign: dict[str, Any]
    attempts: list[Row]
    best: list[Row]
    """The last valid attempt of each trial."""
    levels: list[Row]
    overheads: list[Row]
    baseline: str | None
    networks: list[str]
    """Network labels in the order used in all tables and figures: the baseline, then the campaign's order."""
    settings: list[Setting]
    events: list[Row]
    probes: list[Row] = field(default_factory=list)
    """The last valid attempt of each trial that is a probe of a capacity search."""
    verdict: tuple[str, ...] = ()
    """The verdict about the application that was measured; empty if none was."""
    _contrasts: dict[str, list[Row]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the experiment, or of the folder if the experiment is unknown."""
        return str(self.campaign.get("experiment") or self.campaign.get("campaign") or self.run.path.name)

    @cached_property
    def title(self) -> str:
        """The question of the experiment, or its name if experiment.yaml has no title."""
        with suppress(OSError, ValueError, InputError):
            recorded = yaml_text.load((self.run.path / EXPERIMENT).read_text(encoding="utf-8"), EXPERIMENT)
            if isinstance(recorded, dict) and isinstance(title := recorded.get("title"), str) and title:
                return title
        return self.name

    @cached_property
    def as_measured(self) -> list[Row]:
        """The same trials, with the metrics that `best` leaves out because another trial of the cell has none."""
        nulled = {
            row["trial_id"]: row["attempt"]
            for row in self.best
            if any(reason.startswith(tidy.ELSEWHERE) for reason in (row["missing"] or {}).values())
        }
        rows = {(row["trial_id"], row["attempt"]): row for row in self.attempts if row["trial_id"] in nulled}
        return [rows.get((row["trial_id"], row["attempt"]), row) for row in self.best]

    @cached_property
    def invalid(self) -> list[Row]:
        """Invalid attempts, in the order in which they ended."""
        return [row for row in self.attempts if not row["valid"]]

    @property
    def profiled(self) -> list[Row]:
        """The valid attempts of profiled trials."""
        return [row for row in self.attempts if row["valid"] and row["profiled"]]

    @property
    def reasons(self) -> list[tuple[str, int]]:
        """The code of each reason of invalid attempts with their number, the most frequent first."""
        return Counter(Reason.read(row["reason"]).code for row in self.invalid).most_common()

    @cached_property
    def failed(self) -> list[Row]:
        """The last attempt of each trial that has attempts but no valid one."""
        valid = {row["trial_id"] for row in (*self.best, *self.probes)}
        return list({row["trial_id"]: row for row in self.invalid if row["trial_id"] not in valid}.values())

    @property
    def valid(self) -> int:
        """Number of trials with a valid attempt, without profiles."""
        return len(self.best) + len(self.probes)

    @cached_property
    def planned(self) -> int:
        """Number of planned trials without profiles; the number of attempted trials if the plan is unknown."""
        cells = (
            trial.get("cell") if isinstance(trial, dict) else None for trial in self.run.planned.values()
        )
        planned = sum(not (isinstance(cell, dict) and cell.get("profile") is True) for cell in cells)
        return max(planned, self._attempted)

    @property
    def untried(self) -> int:
        """Number of trials without an attempt: the campaign was interrupted, or is still running."""
        return self.planned - self._attempted

    @property
    def _attempted(self) -> int:
        return len({row["trial_id"] for row in self.attempts if not row["profiled"]})

    @property
    def warnings(self) -> list[tuple[str, int]]:
        """Each kind of warning of the valid trials with its number of trials."""
        rows = (*self.best, *self.probes, *self.profiled)
        return formats.kinds(text for row in rows for text in dict.fromkeys(row["warnings"]))

    @property
    def notable_events(self) -> list[Row]:
        """All events except the regular starts and ends of a campaign and its parts."""
        regular = ("start", "end", "finish", "done", "block", "trial", "attempt", "prepared", "closed")
        return [row for row in self.events if not any(name in str(row.get("event")) for name in regular)]

    @property
    def curves(self) -> dict[tuple[str, str, int, tuple[Any, ...]], Curve]:
        """Throughput curves with at least two numbers of subscribers.

        The key is (label, transport, payload, rest of the condition).
        """
        # The number of nodes depends on the number of subscribers, so it is not part of the constant rest.
        varying = ("subscribers", "nodes", "transport", "payload_bytes")
        rest = [name for name in conditions.CONDITION if name not in varying]
        curves: dict[tuple[str, str, int, tuple[Any, ...]], Curve] = {}
        for setting in self.settings:
            for (label, point), row in setting.levels(THROUGHPUT).items():
                other = tuple(row[name] for name in rest)
                key = (label, row["transport"] or "unicast", point.payload_bytes, other)
                curves.setdefault(key, {})[point.subscribers] = row
        return {key: dict(sorted(curve.items())) for key, curve in curves.items() if len(curve) > 1}

    def ordered(self, labels: Iterable[str]) -> list[str]:
        """Return some labels once each, in the order of `networks`."""
        return sorted(set(labels), key=self.networks.index)

    @cached_property
    def by_condition(self) -> dict[tuple[Any, ...], list[Row]]:
        """The valid trials of all networks by their condition."""
        return by_columns((row for one in self.settings for row in one.trials), conditions.CONDITION)

    @cached_property
    def overheads_by_repetition(self) -> list[Row]:
        """The overheads of every repetition separately."""
        return overhead.overheads_by_repetition(self.best, self.baseline)

    @cached_property
    def protections(self) -> list[Row]:
        """The overheads of protection relative to the same network without it."""
        return overhead.protections(self.best, self.network_facts)

    @cached_property
    def network_facts(self) -> dict[str, dict[str, Any]]:
        """Facts of each network, by label."""
        return self.run.networks

    @cached_property
    def limits(self) -> list[Row]:
        """The cells relative to plain UDP on the same network, and plain UDP relative to the baseline."""
        return limit.shares(self.best, self.baseline)

    @cached_property
    def searches(self) -> list[capacities.Found]:
        """The capacity searches."""
        return capacities.found(self.probes, self.campaign.get("repetitions"))

    @cached_property
    def capacities(self) -> list[Row]:
        """The capacity of each network for each accepted loss."""
        return capacities.table(self.searches, self.baseline)

    @property
    def has_single_runs(self) -> bool:
        """Whether the overheads of every run are shown: all valid trials are imported. Campaigns plan runs together."""
        testbeds = {row["testbed"] for row in self.best} - {None}
        return bool(self.baseline and self.best) and testbeds <= {"imported"}

    @property
    def tests(self) -> set[str]:
        """The tests with valid trials."""
        return {row["test"] for row in self.best}

    def contrasts(self, quantity: str) -> list[Row]:
        """Compare settings within each network, with the trials of the quantity's own test."""
        if quantity not in self._contrasts:
            test = of_metric(quantity, self.tests)
            trials = [row for setting in self.settings for row in setting.trials if row["test"] == test]
            self._contrasts[quantity] = contrast.contrasts(trials, quantity)
        return self._contrasts[quantity]

    @property
    def testbed(self) -> str:
        """The description of the testbed, which the head of a report states."""
        facts = self._testbed
        stated = facts.get("name")
        recorded = next((row["testbed"] for row in self.attempts if row["testbed"]), None)
        name = stated if isinstance(stated, str) else recorded
        known = {
            "lab": "lab: network namespaces on one machine, one kernel", "imported": "imported: published data",
            None: "testbed not recorded",
        }  # fmt: skip
        text = known.get(name) or str(name)
        if name == "cluster" and machine.all_share_a_kernel(facts.get("facts")):
            text = "cluster whose nodes share one kernel"
        elif name == "cluster" and (sharing := machine.sharing_a_kernel(facts.get("facts"))):
            text = f"cluster in which {sharing} share one kernel"
        # Another program ran in place of RTI PerfTest.
        stand_in = any(STAND_IN in str(row["middleware_version"]) for row in self.best)
        return f"{text} · {STAND_IN_NOTE}" if stand_in else text

    @property
    def _testbed(self) -> dict[str, Any]:
        testbed = self.campaign.get("testbed")
        return testbed if isinstance(testbed, dict) else {"name": testbed}

    @property
    def on_one_machine(self) -> bool:
        """Whether the links between nodes are veth pairs of one machine, in the lab or between local nodes."""
        return self.testbed.startswith("lab") or machine.all_share_a_kernel(self._testbed.get("facts"))

    @property
    def conditions(self) -> list[tuple[str, str]]:
        """The conditions of each setting, which a report states once: (title, conditions of its tests)."""
        return [
            (one.title, " · ".join(filter(None, (one.details(), one.scheduling)))) for one in self.settings
        ]

    def caption(
        self, setting: Setting, test: str | None, relative: bool = False, interval: bool = True
    ) -> str:
        """Return the common part of all captions: n, baseline and interval; `conditions` has the rest."""
        n = setting.repetitions(test)
        known = (
            "one repetition: no 95 % interval"
            if n == "1"
            else "95 % interval"
            if relative or interval
            else ""
        )
        baseline = f"baseline {self.baseline}" if relative else ""
        return " · ".join(
            filter(None, (f"n = {n}", baseline, known, "includes scheduling" if setting.scheduling else ""))
        )


def read(run: RunFolder, parquet: bool = False) -> Content:
    """Read a run folder; on request, write the tidy table to derived/trials.parquet."""
    campaign, attempts = run.campaign, tidy.rows(run)
    if parquet:
        tidy.write_parquet(run, attempts)
    best = tidy.best(attempts)
    labels = list(dict.fromkeys([*run.networks, *(row[UNIT] for row in attempts)]))
    baseline = run.baseline(labels)
    labels.sort(key=lambda label: label != baseline)
    levels, overheads = overhead.levels(best), overhead.overheads(best, baseline, confidence_of(campaign))
    return Content(
        run, campaign, attempts, best, levels, overheads, baseline, labels,
        group(best, levels, overheads), run.events(), tidy.probes(attempts),
    )  # fmt: skip
