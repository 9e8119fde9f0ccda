"""Write an application file from a recording: flows, what was recorded of them as comments, and proposed limits."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from k8sdds.importing import recording
from k8sdds.importing.recorded_topics import PAUSE_NS, Distribution, Topic
from k8sdds.importing.recorded_windows import MAX_DIFFERENCE, Windows
from k8sdds.model import schedule_file
from k8sdds.model.graph import MAX_FLOWS, MIN_SAMPLE_BYTES
from k8sdds.model.rate_profile import MAX_RATE
from k8sdds.model.settings import MAX_SAMPLE_BYTES
from k8sdds.system import yaml_template
from k8sdds.system.errors import InputError
from k8sdds.system.numbers import count, number
from k8sdds.system.reading import escaped, one_line

MIN_MESSAGES = 10
MIN_RATE = 1.0
"""Fewer messages, or messages per second, are no flow that trials of seconds can measure."""
MIN_LIMITED_RATE = 8.0
"""Samples per second of a flow of which such trials can judge the share of missed deadlines."""
MISSED_PERCENT = 5
REPETITIONS = 5
MAX_PERIOD_S = 60
"""Longest period of a schedule, which is the length of a trial: topics with longer pauses have rates."""
MIN_SAMPLES = 180
"""Samples of all repetitions with which a search among 64 configurations can show that fewer than 5 % are late."""
MIN_DURATION_S = 3
MIN_SAMPLES_OF_TRIAL = 5
MAX_LISTED = 200
"""Most topics that a comment lists."""
MAX_NODES = 8
"""Most nodes that are proposed as publishers: each is a process in a pod of its own."""
RECEIVER = "receiver"
"""The node that is proposed as the subscriber of all flows."""

_NO_DATA = {
    "parameter_events": "changes of parameters",
    "rosout": "log messages of the nodes",
    "tf_static": "transforms that are sent once",
}
"""Last parts of names of topics that ROS 2 itself publishes."""

HEADER = """\
{flows} of the {topics} of {name}. Rates and sizes are those at the recorder, with the delays of a network
on the way to it. Lines with "proposal" are not from the recording: state there what your application requires. A
recording has neither the nodes nor the subscribers: replace those at the end by yours.
"""
SCHEDULED = """\
The samples of a flow with a schedule have recorded sizes and times. The file next to this one has them for a part of
the recording that is about as long as a trial.
"""
MEAN_SIZE = "  # the mean, because sizes differ: above"
IRREGULAR = "  # irregular: see the intervals above"


@dataclass(frozen=True)
class Written:
    """An application file, and the files next to it."""

    text: str
    schedules: Mapping[str, str]
    """Text of each file with a recorded schedule, by its name."""


@dataclass
class _Flow:
    """A topic that is measured as a flow."""

    topic: Topic
    name: str = ""
    schedule: str = ""
    """Text of the file with its recorded schedule; empty if it has a rate."""

    @property
    def rate(self) -> float:
        """Samples per second of all publishers, which one node sends."""
        return min(self.topic.rate, MAX_RATE)

    @property
    def payload_bytes(self) -> int:
        return min(max(self.topic.payload_bytes, MIN_SAMPLE_BYTES), MAX_SAMPLE_BYTES)

    @property
    def is_recorded(self) -> bool:
        """Whether a schedule states its samples."""
        return not self.topic.is_constant and self.topic.rate <= MAX_RATE

    @property
    def is_limited(self) -> bool:
        """Whether trials of seconds can judge the share of missed deadlines."""
        return self.rate >= MIN_LIMITED_RATE

    @property
    def load(self) -> float:
        return self.rate * self.payload_bytes


def write(
    name: str,
    path: Path,
    progress: recording.Progress = lambda done, total: None,
    prefix: str | None = None,
) -> Written:
    """Return an application file that has the flows of a recording.

    `prefix` starts the names of the files with recorded schedules, for which the recording is read again. Without it,
    all flows have rates.

    Raises:
        OSError: The recording cannot be read.
        InputError: It is missing or damaged, or has no flow.
    """
    topics = recording.read(path, progress).values()
    left_out = {topic.name: reason for topic in topics if (reason := _left_out(topic))}
    flows = [_Flow(topic) for topic in topics if topic.name not in left_out]
    flows.sort(key=lambda flow: -flow.load)
    left_out |= {flow.topic.name: f"the {MAX_FLOWS} largest flows are above" for flow in flows[MAX_FLOWS:]}
    del flows[MAX_FLOWS:]
    if not flows:
        reasons = "; ".join(f"{topic}: {reason}" for topic, reason in list(left_out.items())[:3])
        raise InputError(
            f"{escaped(path)} has no topic with a flow of messages{reasons and f' ({reasons})'}",
            f"record for longer: at least {MIN_MESSAGES} messages, {MIN_RATE:g} per second, of a topic",
        )
    source = one_line(escaped(path.resolve().name), 100)
    _name(flows)
    duration_s = _add_schedules(path, progress, source, flows) if prefix else _duration_s(flows)
    body = _body(name, source, flows, prefix, duration_s)
    text = "\n".join([*_header(source, flows, len(topics)), "", *body, *_rest(left_out)]) + "\n"
    return Written(text, {_file(prefix, flow): flow.schedule for flow in flows if flow.schedule})


def _file(prefix: str | None, flow: _Flow) -> str:
    return f"{prefix}-{flow.name}.txt"


def _add_schedules(path: Path, progress: recording.Progress, source: str, flows: Sequence[_Flow]) -> float:
    """Add the schedules of the flows that have one; return how long a trial is, in seconds.

    A trial is as long as the longest period. A schedule of which it would send another rate is left out.
    """
    length_s = _duration_s(flows)
    recorded = {flow.topic.name: flow for flow in flows if flow.is_recorded}
    windows = {
        name: Windows(length_s * 10**9, flow.rate, flow.topic.sizes.mean_of_at_least(MIN_SAMPLE_BYTES))
        for name, flow in recorded.items()
    }
    if windows:
        recording.read(path, progress, windows)
    found = []
    for name, flow in recorded.items():
        text = windows[name].text(f"{name}, {flow.topic.type or 'unknown type'}, of {source}")
        if text and (schedule := schedule_file.parse(text)).period_us <= MAX_PERIOD_S * 1e6:
            found.append((flow, text, schedule))
    duration_s = max([length_s, *(schedule.period_us / 1e6 for *_, schedule in found)])
    for flow, text, schedule in found:
        if 1 / MAX_DIFFERENCE <= schedule.rate_of(duration_s) / schedule.rate <= MAX_DIFFERENCE:
            flow.schedule = text
    return duration_s


def _left_out(topic: Topic) -> str:
    """Return why a topic is not a flow; empty if it is."""
    messages = f"{topic.sizes.number:,} message{'s' * (topic.sizes.number != 1)}"
    if known := _NO_DATA.get(topic.name.rpartition("/")[2]):
        return f"{known} ({messages})"
    if topic.sizes.number < MIN_MESSAGES:
        latched = "latched: " if "transient-local" in topic.offered("durability") else ""
        return f"{latched}{messages}"
    if topic.rate < MIN_RATE:
        mean = f"{topic.rate:.2g} messages of {round(topic.sizes.mean):,} bytes per second"
        mean += f" ({active})" if (active := _without_intervals(topic)) else ""
        return f"{mean}, too few in a trial of seconds" if topic.rate else f"{messages} at the same time"
    return ""


def _without_intervals(topic: Topic) -> str:
    """Return the rate of a topic without its long intervals; empty if its rate is that."""
    if topic.active_rate <= topic.rate:
        return ""
    return f"{number(topic.active_rate)} per second without intervals above {PAUSE_NS / 1e9:g} s"


# -- text -------------------------------------------------------------------------------------------------


def _header(source: str, flows: Sequence[_Flow], topics: int) -> list[str]:
    text = HEADER.format(
        name=source, topics=count(topics, "topic"), flows=count(len(flows), "flow").capitalize()
    )
    lines = yaml_template.comment(text)
    scheduled = any(flow.schedule for flow in flows)
    return lines + (["#", *yaml_template.comment(SCHEDULED)] if scheduled else [])


def _duration_s(flows: Sequence[_Flow]) -> int:
    """Return how long a trial must be for the proposed limits to be judged."""
    needed = [
        (MIN_SAMPLES / REPETITIONS if flow.is_limited else MIN_SAMPLES_OF_TRIAL) / flow.rate for flow in flows
    ]
    return math.ceil(max(MIN_DURATION_S, *needed))


def _body(name: str, source: str, flows: Sequence[_Flow], prefix: str | None, duration_s: float) -> list[str]:
    lines = [
        f"name: {yaml_template.flow(name)}",
        f"title: {yaml_template.flow(f'Flows of {source}')}",
        "flows:",
        *(f"  {line}".rstrip() for flow in flows for line in _flow(flow, prefix)),
        "nodes:  # proposal",
        *(f"  {name}: {yaml_template.flow(node)}" for name, node in _nodes(flows).items()),
    ]
    return [
        *lines,
        f"repetitions: {REPETITIONS}",
        f"duration_s: {duration_s:.12g}  # of a trial: for the proposed limits, and a period of each schedule",
    ]


def _flow(flow: _Flow, prefix: str | None) -> list[str]:
    topic = flow.topic
    reliability = "" if topic.offered("reliability") else f"  # {_missing_qos(topic)}: the default of ROS 2"
    lines = [
        *_recorded(topic),
        f"- name: {yaml_template.flow(flow.name)}",
        *(
            [f"  schedule: {yaml_template.flow(_file(prefix, flow))}"]
            if flow.schedule
            else _size_and_rate(flow)
        ),
        f"  reliability: {topic.reliability}{reliability}",
        f"  deadline_ms: {number(1e3 / flow.rate)}  # proposal: one period",
    ]
    return lines + ([f"  missed_percent: {MISSED_PERCENT}  # proposal"] if flow.is_limited else [])


def _nodes(flows: Sequence[_Flow]) -> dict[str, dict[str, list[str]]]:
    """Return proposed nodes: one for the topics of each namespace, and one that subscribes to all of them."""
    spaces: dict[str, list[str]] = {}
    for flow in flows:
        space = flow.topic.name.strip("/").partition("/")
        spaces.setdefault(_word(space[0]) if space[1] else "robot", []).append(flow.name)
    if len(spaces) > MAX_NODES or RECEIVER in spaces:
        spaces = {"robot": [flow.name for flow in flows]}
    nodes = {name: {"publishes": published} for name, published in spaces.items()}
    return nodes | {RECEIVER: {"subscribes": [flow.name for flow in flows]}}


def _size_and_rate(flow: _Flow) -> list[str]:
    topic = flow.topic
    irregular = "" if topic.regular else IRREGULAR
    size = "" if topic.payload_bytes >= topic.sizes.percentile(99) else MEAN_SIZE
    return [
        f"  payload_bytes: {flow.payload_bytes}{_limit(flow.payload_bytes, topic.payload_bytes) or size}",
        f"  rate: {number(flow.rate)}{_limit(flow.rate, topic.rate) or irregular}",
    ]


def _limit(used: float, recorded: float) -> str:
    """Return the comment of a value that differs from the recorded one; empty if it does not."""
    if used == recorded:
        return ""
    return (
        f"  # the {'least' if used > recorded else 'most'} that k8sdds measures; recorded: {recorded:,.10g}"
    )


def _missing_qos(topic: Topic) -> str:
    return "not readable" if topic.is_qos_unreadable else "not recorded"


def _recorded(topic: Topic) -> list[str]:
    """Return what was recorded of a topic, as comments."""
    sizes, load = topic.sizes, topic.rate * topic.sizes.mean * 8e-6
    size = (
        f"{sizes.low:,} bytes each"
        if sizes.low == sizes.high
        else _percentiles(sizes, "bytes", "{:,}".format)
    )
    active = f"; {active}" if (active := _without_intervals(topic)) else ""
    jumps = f"; {topic.jumps:,} after a jump of the clock" if topic.jumps else ""
    offers = [" ".join(sorted(topic.offered(policy))) for policy in ("reliability", "durability", "history")]
    offered = ", ".join(filter(None, offers)) or _missing_qos(topic)
    publishers = f" by {count(len(topic.offers), 'publisher')}" if topic.offers else ""
    texts = [
        f"{topic.name}, {topic.type or 'unknown type'}: {sizes.number:,} messages, {number(load)} Mbit/s",
        f"size: {size}",
        f"interval: {_percentiles(topic.intervals, 'ms', lambda ns: number(ns / 1e6))} (longest pause);"
        f" {topic.burst_percent:.0f} % of the messages in bursts{active}{jumps}",
        f"offered{publishers}: {offered}",
    ]
    return [("# " if index == 0 else "#   ") + line[2:] for index, text in enumerate(texts)
            for line in yaml_template.comment(text, 200)]  # fmt: skip


def _percentiles(values: Distribution, unit: str, shown: Callable[[int], str]) -> str:
    named = {
        "min": values.low,
        "p50": values.percentile(50),
        "p99": values.percentile(99),
        "max": values.high,
    }
    return ", ".join(f"{name} {shown(value)}" for name, value in named.items()) + f" {unit}"


def _rest(left_out: dict[str, str]) -> list[str]:
    listed = [f"{topic}: {reason}" for topic, reason in sorted(left_out.items())]
    more = len(listed) - MAX_LISTED
    lines = listed[:MAX_LISTED] + ([f"and {more:,} more"] if more > 0 else [])
    title = ["", "# Left out:"] if lines else []
    return [*title, *(f"#   {yaml_template.comment(line, 400)[0][2:]}" for line in lines)]


def _word(text: str) -> str:
    """Return text as a name: its end if it is long."""
    return re.sub("[^a-z0-9]+", "-", text.lower()).strip("-")[-40:].lstrip("-") or "flow"


def _name(flows: Sequence[_Flow]) -> None:
    """Give each flow a different name."""
    names: set[str] = set()
    for flow in flows:
        base = _word(flow.topic.name)
        candidates = (base, *(f"{base[-36:].lstrip('-')}-{index}" for index in range(2, len(names) + 3)))
        flow.name = next(each for each in candidates if each not in names)
        names.add(flow.name)
