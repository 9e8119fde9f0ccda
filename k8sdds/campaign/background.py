"""Run background load next to the participants of a trial, and check that it ran all the time.

iperf3 sends the flows from the pod `load0` on the node of the first publisher to the pod `load1` on the node of the
first subscriber. stress-ng runs in `load0`. Both start before the participants and end after them.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from k8sdds.model.background import STRESSOR, Background
from k8sdds.model.measurement import Launch, Listener, Window
from k8sdds.model.reason import Reason
from k8sdds.model.trial import (
    FIRST_PUBLISHER,
    FIRST_SUBSCRIBER,
    LOAD_SINK,
    LOAD_SOURCE,
    Endpoint,
    Participant,
    Trial,
)
from k8sdds.perftest.output import last_line
from k8sdds.results.aggregate import ratio
from k8sdds.system import reading
from k8sdds.system.errors import Problem
from k8sdds.testbeds import core_layout
from k8sdds.testbeds.selection import LAB
from k8sdds.workloads import TrialOutputs, iperf3
from k8sdds.workloads.outputs import TICKS_PER_S, cpu_interval_s
from k8sdds.workloads.tools import PATH

FIRST_PORT = 5301
FLOWS_PER_PROCESS = 128
"""iperf3 has at most this many flows per process."""
FOREVER_S = 86_400
"""The longest time that iperf3 accepts. The flows end with the trial."""
MIN_ACHIEVED_PERCENT = 90
"""Share of the requested rate below which a valid attempt has a warning."""
SAMPLE_S = 0.2
MAX_SAMPLE_S = 1
"""Time between two lines of a pod's output, and the longest that is expected on a busy machine."""
STDOUT = "stdout"
ENDED = 99
"""Exit code of a pod of the background in which a program ended before the participants."""
TOOLS = {"iperf3": "flows", STRESSOR: "cpus"}
"""Programs, each with the key of `background` that needs it."""


def problems(trials: Sequence[Trial]) -> list[Problem]:
    """Return why this machine cannot run the background of trials in the lab."""
    found: dict[str, Problem] = {}
    cores = core_layout.available()
    for cell in (trial.cell for trial in trials if trial.testbed == LAB):
        for tool, key in TOOLS.items():
            if getattr(cell.background, key) and not shutil.which(tool, path=PATH):
                found.setdefault(
                    tool,
                    Problem(f"background.{key} needs {tool}, which is not installed", "run: k8sdds setup"),
                )
        if unknown := [cpu for cpu in cell.background.cpus if cpu not in cores]:
            what = f"background.cpus: k8sdds cannot use core {unknown[0]}, only {', '.join(map(str, cores))}"
            found.setdefault(what, Problem(what, "name other cores", input=True))
    return list(found.values())


def launches(
    trial: Trial,
    folder: Path,
    endpoints: Mapping[str, Endpoint],
    files: Callable[[Participant, Path], Path],
) -> list[Launch]:
    """Return the programs that run next to the participants, receivers first. Empty without background.

    `files` maps a pod's folder on this machine to the path that the pod sees.
    """
    load = trial.cell.background
    ports = [FIRST_PORT + index for index in range(math.ceil(load.flows / FLOWS_PER_PROCESS))]
    commands: list[tuple[Participant, str, Listener]] = []
    if ports:
        address = endpoints[LOAD_SINK.name].address
        servers = [f"iperf3 --server --interval 0 --port {port} --bind {address}" for port in ports]
        commands.append((LOAD_SINK, _script(servers), Listener("tcp", ports[-1])))
        script = _script(_clients(load, ports, address), _stressors(load))
        commands.append((LOAD_SOURCE, script, Listener("tcp", ports[-1], connects=True)))
    elif load:
        commands.append((LOAD_SOURCE, _script([], _stressors(load)), Listener("tcp", 0)))
    return [
        Launch(
            participant=participant,
            argv=("sh", "-c", script),
            directory=directory,
            env=iperf3.environment(files(participant, directory)),
            listens=listener,
            # The meters are read while the participants measure, for as long.
            window=Window(trial.warmup_s, trial.duration_s),
        )
        for participant, script, listener in commands
        for directory in [(folder / participant.name).resolve()]
    ]


def _script(flows: Sequence[str], stressors: Sequence[str] = ()) -> str:
    """Return a script that runs programs at the same time, and prints what they have done.

    Each line of its output is the time since boot; `rchar` and `wchar` of all programs in /proc/PID/io, which contain
    the payload of sockets; and for each busy process, which is a child of its program, its core and its CPU time, as
    `CORE:TICKS`. It ends with an error if a program ends.
    """
    started = "\n".join(
        f'{command} >/dev/null & {pids}="${pids} $!"'
        for pids, commands in (("flows", flows), ("stressors", stressors))
        for command in commands
    )
    return f"""flows= stressors=
{started}
while :; do
  read up idle </proc/uptime
  r=0 w=0 busy=
  for pid in $flows $stressors; do
    [ -e /proc/$pid/exe ] || {{ echo a program ended >&2; exit {ENDED}; }}
    while read key value; do
      case $key in rchar:) r=$((r + value));; wchar:) w=$((w + value));; esac
    done </proc/$pid/io
  done
  for pid in $stressors; do
    read -r children </proc/$pid/task/$pid/children
    for child in $children; do
      # After the name: the state, which is field 3, up to the times (14 and 15) and the core (39).
      read -r stat </proc/$child/stat && set -- ${{stat##*) }} && busy="$busy ${{37}}:$((${{12}} + ${{13}}))"
    done
  done
  echo $up $r $w $busy
  sleep {SAMPLE_S}
done"""


def _clients(load: Background, ports: Sequence[int], address: str) -> list[str]:
    bits_per_s = round(load.rate_mbit * 1e6)
    # Writes with which a flow is smooth: ten per second, within what iperf3 uses by default.
    write_bytes = max(64, min(128 * 1024, bits_per_s // (8 * 10)))
    options = " --udp" if load.kind == "udp" else f" --length {write_bytes}" if bits_per_s else ""
    return [
        f"iperf3 --client {address} --port {port} --interval 0 --time {FOREVER_S}"
        f" --parallel {min(FLOWS_PER_PROCESS, load.flows - index * FLOWS_PER_PROCESS)}"
        f" --bitrate {bits_per_s}{options}"
        for index, port in enumerate(ports)
    ]


def _stressors(load: Background) -> list[str]:
    return [
        f'{STRESSOR} --quiet --temp-path "$TMPDIR" --cpu 1 --taskset {cpu} --timeout 0' for cpu in load.cpus
    ]


def observed(outputs: TrialOutputs) -> dict[str, float | None]:
    """Return the rates of the background during the participants' measured interval."""
    load = outputs.trial.cell.background
    source = _progress(outputs, LOAD_SOURCE, FIRST_PUBLISHER)
    result: dict[str, float | None] = {"interval_s": source.seconds if source else None}
    if load.flows:
        sink = _progress(outputs, LOAD_SINK, FIRST_SUBSCRIBER)
        sent = ratio(source.written, source.seconds, 8e-6) if source else None
        result |= {"sent_mbps": sent, "received_mbps": ratio(sink.read, sink.seconds, 8e-6) if sink else None}
        result["sent_percent"] = ratio(sent, load.flows * load.rate_mbit, 100)
    if load.cpus:
        meters = outputs.meters.get(LOAD_SOURCE.name, {})
        result["cpu_percent"] = ratio(meters.get("cpu_s"), cpu_interval_s(meters), 100)
        for cpu in load.cpus:
            busy = ratio(source.busy_s.get(cpu, 0.0), source.seconds, 100) if source else None
            result[f"cpu{cpu}_percent"] = busy
    return result


@dataclass(frozen=True)
class _Progress:
    """What the programs of a pod did in an interval."""

    seconds: float
    read: int
    written: int
    busy_s: Mapping[int, float]
    """CPU time of the busy processes, by the core that they ran on at its end."""


def _progress(outputs: TrialOutputs, load: Participant, neighbor: Participant) -> _Progress | None:
    """Return a pod's output in the measured interval of the participant on its node; None unless it ran all of it."""
    meters = outputs.meters.get(load.name) or {}
    measured = outputs.meters_of(neighbor).get("interval") or {}
    try:
        rows = [line.split() for line in reading.text(outputs.folder / load.name / STDOUT).splitlines()]
        samples = [(float(up), int(read), int(written), _busy_s(busy)) for up, read, written, *busy in rows]
        # The first line is printed at the start. It relates the time since boot to the clock of the meters, which
        # stands still while the machine is suspended.
        start_s = samples[0][0] + (measured["start_monotonic_ns"] - meters["start_monotonic_ns"]) / 1e9
        end_s = start_s + measured["duration_s"]
    except (OSError, ValueError, KeyError, TypeError, IndexError, reading.UnreadableError):
        return None
    before = [sample for sample in samples if sample[0] <= start_s]
    after = [sample for sample in samples if sample[0] >= end_s]
    # The pods are stopped right after the participants, which can be before the next line. That they ran until then is
    # in their exit codes.
    after = after or [sample for sample in samples[-1:] if sample[0] >= end_s - MAX_SAMPLE_S]
    if not before or not after or before[-1] is after[0]:
        return None
    start_s, read, written, busy_s = before[-1]
    end_s, read_until, written_until, busy_until_s = after[0]
    spent_s = {cpu: until_s - busy_s.get(cpu, 0.0) for cpu, until_s in busy_until_s.items()}
    return _Progress(end_s - start_s, read_until - read, written_until - written, spent_s)


def _busy_s(printed: Sequence[str]) -> dict[int, float]:
    """Return the CPU time on each core from `CORE:TICKS`."""
    busy_s: dict[int, float] = {}
    for cpu, ticks in (text.split(":") for text in printed):
        busy_s[int(cpu)] = busy_s.get(int(cpu), 0.0) + int(ticks) / TICKS_PER_S
    return busy_s


def error(outputs: TrialOutputs, name: str) -> str:
    """Return why a pod of the background failed, as its programs reported."""
    return last_line(outputs.folder / name / "stderr") or "it ended before the participants"


def invalid(outputs: TrialOutputs) -> Reason | None:
    """Return why the background did not run during the whole measured interval, or None."""
    load = outputs.trial.cell.background
    if not load:
        return None
    found = observed(outputs)
    if found["interval_s"] is None or (load.flows and found["received_mbps"] is None):
        return Reason("background", "it did not run during the whole measured interval")
    if load.flows and not found["received_mbps"]:
        return Reason("background", "no data of the flows arrived")
    idle = [str(cpu) for cpu in load.cpus if not found[f"cpu{cpu}_percent"]]
    if idle:
        return Reason("background", f"{STRESSOR} used no CPU time on core {', '.join(idle)}")
    return None


def warnings(outputs: TrialOutputs) -> list[str]:
    """Return a warning if the background was slower than requested."""
    share = observed(outputs).get("sent_percent") if outputs.trial.cell.background else None
    if share is None or share >= MIN_ACHIEVED_PERCENT:
        return []
    return [f"background: the flows sent {share:.0f} % of the requested rate"]
