"""Describe the limitations of the results of a campaign: what is missing, and how it was measured."""

from __future__ import annotations

import math
from collections import Counter

from k8sdds import networks, workloads
from k8sdds.analysis import background_cost, missing
from k8sdds.analysis.conditions import UNIT
from k8sdds.analysis.statistics import STOPPED_CONFIDENCE
from k8sdds.model.link import Link
from k8sdds.model.offloads import Offloads
from k8sdds.model.trial import AXES
from k8sdds.report import cpu_limits, formats
from k8sdds.report.content import Content
from k8sdds.report.settings import Point
from k8sdds.report.summary import is_undecided
from k8sdds.results import tidy
from k8sdds.results.metrics import METRICS
from k8sdds.system.grouping import by_columns
from k8sdds.testbeds.selection import LAB
from k8sdds.workloads import HEADLINES, paced


def notes(content: Content) -> list[str]:
    """Return the notes that follow the summary: missing trials or intervals, scheduling, warnings, testbed."""
    found = [*_incomplete(content), *_repetitions(content)]
    if content.settings and not content.baseline:
        found.append("The campaign has no baseline network, so there are levels but no overheads.")
    if (percent := content.campaign.get("precision_percent")) is not None:
        found.append(
            f"The campaign had to reach ±{percent:g} percentage points: intervals of overheads are computed at"
            f" {STOPPED_CONFIDENCE * 100:.0f} %, so that they hold in 95 % of such campaigns."
        )
    for place, labels in _places_without_baseline(content) if content.baseline else ():
        found.append(f"{content.baseline} {place}; levels without overheads for {formats.join(labels)}.")
    compared = [
        row for setting in content.settings for name in HEADLINES for row in setting.overheads(name).values()
    ]
    if compared and sum(map(is_undecided, compared)) > len(compared) / 2:
        found.append(
            "The repetitions vary so much that most comparisons are undecided. Repeat more often, measure"
            " longer, or use a machine without other work."
        )
    if any(setting.scheduling for setting in content.settings):
        found.append("Some trials had more participants than cores: their results include scheduling.")
    found += _missing(content) + _delay_methods(content)
    found += [*_second_interfaces(content), *cpu_limits.notes(content)]
    links = dict.fromkeys(_link(row["link"]) for row in content.best)
    found += [f"Links {link.name}: {link.details()}." for link in links if link.name]
    found += _links_of_tcp(content)
    if with_warnings := sum(1 for trial in content.best if trial["warnings"]):
        verb = "has" if with_warnings == 1 else "have"
        found.append(
            f"{formats.count(with_warnings, 'valid trial')} {verb} warnings, which the report lists."
        )
    found += [f"Not measured: {what}." for what in background_cost.missing_readings(content.run)]
    where = "Measured in the " if content.testbed.startswith("lab") else "Testbed: "
    return [*found, f"{where}{content.testbed}. Compare only within this campaign."]


def _incomplete(content: Content) -> list[str]:
    parts = []
    if content.failed:
        parts.append(f"{len(content.failed)} have only invalid attempts")
    if content.untried:
        parts.append(f"{content.untried} {'was' if content.untried == 1 else 'were'} not attempted")
    valid = f"{content.valid} of {content.planned} trials have a valid attempt"
    return [*(["; ".join([valid, *parts]) + "."] if parts else []), *_unreadable(content)]


def _unreadable(content: Content) -> list[str]:
    """State which attempts cannot be read, and how to measure their trials again."""
    numbers = content.run.unreadable_lines()
    if not numbers:
        return []
    one = len(numbers) == 1
    lines = f"{'Line' if one else 'Lines'} {formats.join([str(number) for number in numbers])}"
    return [
        f"{lines} of trials.jsonl cannot be read (a crash can cause this), so"
        f" {'its attempt does' if one else 'their attempts do'} not count."
        + (" Measure what is missing: k8sdds run --resume FOLDER" if content.untried else "")
    ]


def _repetitions(content: Content) -> list[str]:
    if not content.settings:
        return []
    # A high percentile can be known in some repetitions only; that is no reason for a warning.
    repetitions = {row["n"] for row in content.levels if row["quantity"] in HEADLINES}
    if repetitions == {1}:
        return [
            "One repetition: there is no confidence interval, so any difference can be chance. Repeat at"
            " least 3 times."
        ]
    return (
        ["Cells with one valid repetition have no confidence interval (n = 1)."] if 1 in repetitions else []
    )


def _missing(content: Content) -> list[str]:
    """Name the networks without a headline metric: trials have too few values or episodes, or ended before it."""
    notes = []
    for name in HEADLINES:
        notes += _censored(content, name)
        others = [
            row
            for row in content.best
            if not tidy.is_unfinished_or_silent(name, missing.reasons(row).get(name, ""))
        ]
        labels = [row[UNIT] for row in missing.by_network(others) if row["quantity"] == name]
        if labels:
            notes.append(
                f"No {METRICS[name].title} of some trials of {formats.join(labels)}: too few samples arrived for"
                " this percentile, or a few stalls decide it. Their cells have none, because it would be that of the"
                " trials without stalls and with less loss. Look at their rate and their loss, or"
                f" {missing.remedy(others, name)}."
            )
    return notes


def _censored(content: Content, name: str) -> list[str]:
    """State how many trials ended before a time that is therefore longer than they were, or without samples."""
    shares = {
        label: missing.share([row for row in content.best if row[UNIT] == label], name)
        for label in content.networks
    }
    texts = [f"{label} ({share})" for label, share in shares.items() if share]
    if not texts:
        return []
    if not METRICS[name].censored:
        return [
            f"Some trials of {formats.join(texts)} have no {METRICS[name].title}. Their cells have none, because it"
            " would be that of the repetitions that lost least."
        ]
    return [
        f"The {METRICS[name].title} is longer than some trials of {formats.join(texts)}. Their cells have no mean,"
        " because it would be that of the fastest repetitions. Measure longer, to see whether they recover."
    ]


def _delay_methods(content: Content) -> list[str]:
    """State by which clocks delays were measured, and by how much these can falsify them."""
    texts = []
    for method, n in Counter(row["delay_method"] for row in content.best if row["delay_method"]).items():
        text = {
            paced.SHARED_CLOCK: "one-way, by a clock that all participants share",
            paced.SYNCHRONIZED_CLOCKS: "one-way, by synchronized clocks",
            paced.HALF_ROUND_TRIP: "as half of round trips",
        }.get(method, method)
        texts.append(f"{text} ({formats.count(n, 'trial')})")
    notes = [f"Delays were measured {formats.join(texts)}."] if texts else []
    errors_us = [
        (row["clock_error_us"] or 0, row["delay_p50_us"] or math.inf)
        for row in content.best
        if row["delay_method"] == paced.SYNCHRONIZED_CLOCKS
    ]
    if errors_us:
        largest_us, percent = max(errors_us)[0], max(100 * error / median for error, median in errors_us)
        notes.append(
            f"Delays by synchronized clocks may be wrong by up to {formats.number(largest_us)} µs ({percent:.2g} % of"
            " the median delay). This error is the same in all repetitions, so no interval contains it."
        )
    return notes


def _second_interfaces(content: Content) -> list[str]:
    """Name the networks whose trials used another interface of the pods than the first one."""
    known, notes = networks.known_names(), []
    measured = [row for row in content.best if row["network"] in known and row["testbed"] != "imported"]
    for (label, name, testbed), rows in by_columns(measured, (UNIT, "network", "testbed")).items():
        if not (interface := networks.find(name).pod_interface):
            continue
        first = [*dict.fromkeys(row["installed_network"] for row in rows)]
        on = formats.join([other for other in first if other not in (None, name)])
        where = (
            "pods on a cluster; pods of the lab have no other"
            if testbed == LAB
            else f"the pods. The first one{on and f', on {on},'} carried none. Services, DNS and NetworkPolicies apply"
            " only to the first one"
        )
        notes.append(f"Samples of {label} used {interface}, the second interface of {where}.")
    return notes


def _links_of_tcp(content: Content) -> list[str]:
    """State how large the packets of TCP tests were on the links between nodes, which decides what an overlay costs."""
    tcp = [name for name, workload in workloads.WORKLOADS.items() if workload.tcp]
    measured = [row for row in content.best if row["test"] in tcp and row["testbed"] != "imported"]
    packets = Counter(_packets(_link(row["link"]).offloads, content.on_one_machine) for row in measured)
    texts = [f"{size} ({offloads}; {formats.count(n, 'trial')})" for (size, offloads), n in packets.items()]
    return [f"TCP packets on the links {formats.join(texts)}."] if texts else []


def _packets(offloads: Offloads, on_one_machine: bool) -> tuple[str, str]:
    """Describe the size of the packets of TCP on a link, and its offloads."""
    if offloads.tso is False:
        size = "were at most as large as the MTU, as between Ethernet cards"
    elif on_one_machine:
        size = (
            "had up to 64 KiB, because veth pairs segment nothing: an overlay's header is paid once for each, so"
            " amounts are not those of network cards (set `link.rate_mbit` to give the links the offloads of a card)"
        )
    else:
        size = "were as large as the network cards made them"
    return size, offloads.describe() or "offloads unchanged"


def _link(recorded: str | None) -> Link:
    return AXES["link"].parsed(recorded) or Link()


def _places_without_baseline(content: Content) -> list[tuple[str, list[str]]]:
    """Return where the baseline was not measured or has no valid trial, and the networks measured there."""
    places = []
    for setting in content.settings:
        base = {(row["test"], Point.of(row)) for row in setting.trials if row[UNIT] == content.baseline}
        unpaired = [row for row in setting.trials if (row["test"], Point.of(row)) not in base]
        if not unpaired:
            continue
        place = setting.title[0].lower() + setting.title[1:]
        if base:
            points = sorted({Point.of(row) for row in unpaired})
            place += f" at {formats.join([setting.point_label(point) for point in points])}"
        failed = any(
            row[UNIT] == content.baseline and setting.values.items() <= row.items() for row in content.invalid
        )
        how = "has no valid trial" if failed else "was not measured"
        places.append((f"{how} in {place}", sorted({row[UNIT] for row in unpaired})))
    return places
