"""List the readers of what others wrote, each with the documents that its inputs are made from."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import random
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from k8sdds import claims, links
from k8sdds.analysis import background_cost, components, profile
from k8sdds.campaign import applications, experiments
from k8sdds.campaign.expansion import candidates, expand
from k8sdds.campaign.experiments import Changes
from k8sdds.claims import study
from k8sdds.deploy import node_links, profiles
from k8sdds.importing import kubectl_top as published_top
from k8sdds.importing import osrf, recorded_application
from k8sdds.kubernetes import exec_stream, kubeconfig
from k8sdds.kubernetes.metrics import metrics_api, node_meter
from k8sdds.middleware import config_checksum, connext
from k8sdds.model import graph, link_files, schedule_file
from k8sdds.model.application import Application
from k8sdds.model.impairments import Delay, FromFile, Loss, Rate
from k8sdds.model.link import Link
from k8sdds.model.link_choice import LinkChoice
from k8sdds.model.trial import participants
from k8sdds.networks import packets
from k8sdds.perftest import log
from k8sdds.perftest import output as perftest_output
from k8sdds.report import caveats, summary, tables
from k8sdds.report import content as contents
from k8sdds.results import histograms, link_statistics, slow_samples, tidy
from k8sdds.results.record import impossible_value
from k8sdds.results.run_folder import RunFolder
from k8sdds.security import directory
from k8sdds.system import perf, reading, yaml_text
from k8sdds.system.errors import InputError
from k8sdds.testbeds import machine_cpu, packet_handling, read_meters, selection
from k8sdds.testbeds.cluster import evidence
from tests import recordings, run_folders
from tests.unit.fuzzing import damage
from tests.unit.test_attempt import Recording

CORPUS = Path(__file__).parent / "corpus"
RECORDED = Path(__file__).parents[1] / "recorded"

Damage = Callable[[bytes, random.Random], bytes]


@dataclass(frozen=True)
class Reader:
    """A reader, the documents that its inputs are made from, and how these are damaged."""

    name: str
    seeds: Callable[[], list[bytes]]
    read: Callable[[bytes, Path], object]
    """Reads an input; the folder is empty and writable."""
    damage: Damage
    batch: int = 1
    """Number of damaged documents, such as lines, in an input."""
    prepare: Callable[[Path], object] = field(default=lambda folder: None)


def corpus(name: str) -> Callable[[], list[bytes]]:
    """Return a function that reads all documents of a folder of the corpus."""
    return lambda: [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]


def _answers() -> list[bytes]:
    """Return the answers of a node that emulates a link, from recorded statistics."""
    recorded = json.loads((RECORDED / "outage/links.json").read_bytes())
    moments = [
        recorded["started_us"],
        *(recorded["started_us"] + each["at_us"] for each in recorded["outages"]),
    ]
    return ["\n".join([*map(str, moments), json.dumps(recorded), ""]).encode()]


def _node_answer(data: bytes, _: Path) -> None:
    # Connections replace bytes that are not UTF-8.
    text = data.decode("utf-8", "replace")
    clock = text.partition("\n")[0] + "\n1700000000123456789\n"
    assert abs(node_links.read_clock(clock)) < 10**19
    found = node_links.read_statistics(text, "node0", ["100", "off"], 0)
    json.dumps(link_statistics.summary(found.values), allow_nan=False)


def _file(read: Callable[[Path], object], name: str) -> Callable[[bytes, Path], object]:
    def write_and_read(data: bytes, folder: Path) -> object:
        path = folder / name
        path.write_bytes(data)
        return read(path)

    return write_and_read


def _schedule(data: bytes, folder: Path) -> object:
    # Files are parsed once while neither their time nor their size changes.
    path = folder / hashlib.sha256(data).hexdigest()
    path.write_bytes(data)
    return schedule_file.read(str(path))


def _graph(data: bytes, _: Path) -> None:
    try:
        whole = graph.parse(data.decode("utf-8", "surrogateescape"))
    except ValueError as error:
        raise InputError(str(error), "correct the text") from error
    assert graph.parse(whole.text()) == whole


def _experiment(path: Path) -> None:
    experiment = experiments.load(str(path))
    if len(experiment.sweeps) < 5 and all(len(sweep.payload_bytes) < 20 for sweep in experiment.sweeps):
        expand(experiment)


def _application(path: Path) -> None:
    application = applications.load(str(path))
    values = [getattr(application.choices, name) for name in type(application.choices).model_fields]
    if all(len(value) < 4 for value in values):
        candidates(applications.experiment(application))


def _link(path: Path) -> None:
    link = links.resolve(LinkChoice(like=str(path))).link
    assert Link.model_validate_json(link.model_dump_json()) == link
    link.describe()


def _link_file(kind: type[FromFile], path: Path) -> None:
    checked = link_files.checked(Link(**{kind.__name__.lower(): {"file": str(path)}}))
    assert link_files.values(link_files.files_of(checked)[0])


def _study(data: bytes, folder: Path) -> None:
    (folder / study.PLAN).write_bytes(data)
    (folder / study.CLAIMS).write_text(claims.CLAIMS.read("aa")[1])
    opened = study.StudyFolder.open(folder)
    selection.parse(opened.plan.testbed)
    for campaign in opened.plan.campaigns:
        assert opened.run(campaign).parent == folder


def _setting(data: bytes, _: Path) -> None:
    experiments.load("quickstart", Changes(settings=[data.decode("utf-8", "surrogateescape")]))


def _run_folder(folder: Path) -> RunFolder:
    return run_folders.single(folder / "run")


def _report(run: RunFolder) -> None:
    content = contents.read(run)
    summary.answer(content)
    caveats.notes(content)
    for setting in content.settings:
        tables.overheads(content, setting)


def _attempts(data: bytes, folder: Path) -> None:
    run = RunFolder(folder / "run")
    (run.path / "trials.jsonl").write_bytes(data)
    for attempt in run.attempts():
        if attempt.get("valid") is True:
            assert 0 <= (attempt.get("throughput_mbps") or 0) <= 400_000
    assert all(row["valid"] for row in tidy.best(tidy.rows(run)))


def _campaign(data: bytes, folder: Path) -> None:
    run = RunFolder(folder / "run")
    (run.path / "campaign.json").write_bytes(data)
    assert isinstance(run.campaign, dict)
    _ = run.reached
    if random.Random(len(data)).random() < 0.1:
        _report(run)


def _readings(data: bytes, folder: Path) -> None:
    run = RunFolder(folder / "run")
    (run.path / "readings.jsonl").write_bytes(data)
    (run.path / "events.jsonl").write_bytes(data)
    run.events()
    background_cost.by_network(run)
    background_cost.missing_readings(run)
    background_cost.top_by_node(run)


@cache
def _recording(folder: Path) -> Recording:
    return Recording("paced", folder / "raw")


@cache
def _usual_histograms(folder: Path) -> dict[str, Any]:
    """Return what replaces the histograms, which take most of the time: another reader reads damaged ones."""
    decoded = histograms.latencies(histograms.logged(folder))
    quantities = histograms.quantities_us(decoded["one_way"])
    return {"latencies": lambda _: decoded, "quantities_us": lambda _: quantities}


@cache
def _usual_quantities() -> dict[str, float]:
    """Return what replaces the quantities of a histogram, which take 0.2 s."""
    return histograms.quantities_us(
        histograms.latencies(histograms.logged(RECORDED / "tcp-crr"))["round_trip"]
    )


def _record(name: str, participant: str) -> Callable[[bytes, Path], object]:
    def read(data: bytes, folder: Path) -> object:
        recording = _recording(folder)
        path = recording.folder / participant / name
        path.write_bytes(data)
        if name == "meters.json":
            recording.meters[participant] = read_meters(path.parent)
        with mock.patch.multiple(histograms, **_usual_histograms(recording.folder)):
            return json.dumps(recording.record(), allow_nan=False)

    return read


def _slow_samples(data: bytes, folder: Path) -> object:
    (folder / slow_samples.FILE).write_bytes(data)
    return slow_samples.of_subscriber(folder)


def _outage(name: str) -> Callable[[bytes, Path], object]:
    """Return a function that makes a record of a trial with an outage of which one file is damaged."""

    def read(data: bytes, folder: Path) -> object:
        recording = Recording("outage", folder / "outage")
        # The lab hands over what the links did; the file is read for the traffic over time.
        measurement = recording.measurement()
        (recording.folder / name).write_bytes(data)
        return json.dumps(recording.record(measurement), allow_nan=False)

    return read


def _tool(name: str) -> tuple[Callable[[], list[bytes]], Callable[[bytes, Path], object]]:
    """Return the recorded output of a tool, and a function that makes a record of a damaged one."""

    def read(data: bytes, folder: Path) -> object:
        recording = Recording(name, folder / name)
        (recording.folder / "pub0" / "stdout").write_bytes(data)
        quantities = _usual_quantities()
        with mock.patch.object(histograms, "quantities_us", lambda _: quantities):
            return json.dumps(recording.record(), allow_nan=False)

    return _recorded(f"{name}/pub0/stdout"), read


def _participant(data: bytes, folder: Path) -> None:
    path = folder / "sub0" / "latency.hlog"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    for histogram in histograms.latencies(histograms.logged(folder)).values():
        histograms.quantities_us(histogram)
    histograms.episodes(folder, ["one_way"], {"p50": 0.0, "p99": 500.0, "p9999": 1e9})


def _logs() -> list[bytes]:
    """Return the recorded logs, with and without a line of episodes."""
    recorded = _recorded("paced/sub*/latency.hlog")()
    line = b"Tag=one_way,"
    return [
        *recorded,
        *(log + log[log.index(line) :].replace(line, b"Tag=one_way_episodes,") for log in recorded),
    ]


def _connext(data: bytes, folder: Path) -> None:
    (folder / "stderr").write_bytes(data)
    (folder / "stdout").write_bytes(data)
    connext.read_output(folder, 1024, True, 3)
    log.read(data)
    perftest_output.last_line(folder / "stderr")
    published_top.read(data)


def _osrf(data: bytes, folder: Path) -> None:
    rows, _ = osrf.read(data)
    for row in rows.values():
        assert row.cell.cell_id and impossible_value(row.settings | row.metrics) is None


_CREDENTIALS = (
    "security.json", "identity_ca.pem", "pub0/certificate.pem", "pub0/permissions.p7s", "pub0/key.pem",
    "authority-keys/identity_ca.key", "governance/SignRTPS.p7s",
)  # fmt: skip


@cache
def _credentials() -> Path:
    """Create credentials; a repository should not contain private keys."""
    folder = Path(tempfile.mkdtemp(prefix="k8sdds-test-"))
    atexit.register(shutil.rmtree, folder)
    directory.init(folder / "credentials", participants(1, 1), 30, "ec", range(10))
    return folder / "credentials"


def _copy_credentials(folder: Path) -> None:
    shutil.copytree(_credentials(), folder / "credentials")


def _credential(data: bytes, folder: Path) -> None:
    """Read credentials of which one file, named in the first line of the input, is damaged or missing."""
    name, _, content = data.partition(b"\n")
    whole = folder / "credentials"
    path = whole / name.decode()
    original = path.read_bytes()
    try:
        path.unlink()
        if content != b"missing":
            path.write_bytes(content)
        directory.show(whole)
        directory.check(whole)
    finally:
        path.write_bytes(original)


def _credential_seeds() -> list[bytes]:
    return [f"{name}\n".encode() + (_credentials() / name).read_bytes() for name in _CREDENTIALS]


def _damaged_credential(seed: bytes, chance: random.Random) -> bytes:
    name, _, content = seed.partition(b"\n")
    kind = damage.json_of if name.endswith(b".json") else damage.bytes_of
    damaged = b"missing" if chance.random() < 0.05 else kind(content, chance)
    return name + b"\n" + damaged


def _answer(data: bytes, _: Path) -> None:
    from k8sdds.kubernetes import client

    probe = object.__new__(client.KubernetesClient)
    probe.server = "https://192.0.2.1"
    probe._parse(data)
    client._error_message(500, data)
    exec_stream._exit_code(data)
    exec_stream._status_message(data)


def _metrics(data: bytes, _: Path) -> None:
    metrics_api.parse(data)


def _processes(data: bytes, _: Path) -> None:
    seen = machine_cpu.parse(data, "the list of processes")
    seen.tree([1])
    usage = evidence.usage(seen, {"12345678-1234-1234-1234-123456789abc": components.PARTICIPANT})
    assert machine_cpu.between(usage, usage) is None


def _meter(data: bytes, _: Path) -> None:
    try:
        node_meter.parse(data.decode("utf-8", "replace"))
    except ValueError:
        return


def _perf(data: bytes, folder: Path) -> None:
    samples = list(perf.parse(iter(data.decode("utf-8", "replace").split("\n"))))
    times = [sample.monotonic_ns for sample in samples]
    start_ns, end_ns = min(times, default=0), max(times, default=0) + 1
    found = profile.reduce(samples, ["cpu-clock"], 499, start_ns, end_ns, lambda pid: "participant")
    profile.summary(found, 10)


def _cpu_profile(path: Path) -> None:
    profile.summary(profile.read(path.parent), 10)


def _packets(data: bytes, _: Path) -> None:
    try:
        packets.wrapping(packets.read_pcap(data), b"k8sdds-recorded", 1024, 4)
    except ValueError:
        return


def _packet_handling(data: bytes, _: Path) -> None:
    text = data.decode("utf-8", "replace")
    sections = ("route", "links", "conntrack", "nft", "queues", "filter eth0 ingress")
    with contextlib.suppress(ValueError):
        packet_handling.parse("".join(f"== {name} 0\n{text}\n" for name in sections))


def _json(data: bytes, _: Path) -> None:
    text = json.dumps(reading.json_value(data, "x.json"), allow_nan=False, ensure_ascii=False)
    assert reading.unprintable(json.loads(text)) is None if isinstance(json.loads(text), str) else True
    text.encode()


def _lines() -> list[bytes]:
    return (CORPUS / "trials" / "attempts.jsonl").read_bytes().splitlines()


def _recorded(pattern: str) -> Callable[[], list[bytes]]:
    return lambda: [path.read_bytes() for path in sorted(RECORDED.glob(pattern))]


def _selected(data: bytes, folder: Path) -> None:
    path = folder / "testbed.json"
    path.write_bytes(data)
    selection.parse(reading.json_file(path))


_TOPICS = {
    "/a": recordings.periodic(20, 300),
    "/b": recordings.periodic(10, 100),
    "/c": recordings.bursts(100, 5, 400),
}


def _rosbag2(storage: str) -> list[bytes]:
    """Return files of recordings by rosbag2, with every compression."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [
            recordings.rosbag2(Path(folder) / kind, _TOPICS, kind)
            for kind in recordings.ROSBAG2
            if kind.startswith(storage)
        ]
        return [file.read_bytes() for path in paths for file in path.iterdir() if file.suffix != ".yaml"]


@cache
def _mcap() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        paths = [recordings.mcap(Path(folder) / kind, _TOPICS, kind) for kind in recordings.MCAP]
        return [path.read_bytes() for path in paths] + _rosbag2("mcap")


@cache
def _sqlite() -> list[bytes]:
    return _rosbag2("sqlite")


def _recorded_application(path: Path) -> None:
    written = recorded_application.write("mine", path, prefix="mine")
    yaml_text.parse(written.text, Application, "written.yaml")
    for text in written.schedules.values():
        schedule_file.parse(text)


READERS = [
    Reader("application", corpus("applications"), _file(_application, "a.yaml"), damage.bytes_of),
    Reader("experiment", corpus("experiments"), _file(_experiment, "e.yaml"), damage.bytes_of),
    Reader("link", corpus("links"), _file(_link, "l.yaml"), damage.bytes_of),
    Reader("delays", corpus("delays"), _file(lambda path: _link_file(Delay, path), "d.txt"), damage.bytes_of),
    Reader("losses", corpus("losses"), _file(lambda path: _link_file(Loss, path), "p.txt"), damage.bytes_of),
    Reader("rates", corpus("rates"), _file(lambda path: _link_file(Rate, path), "r.trace"), damage.bytes_of),
    Reader("schedule", corpus("schedules"), _schedule, damage.bytes_of),
    Reader("graph", _recorded("graph/graph.txt"), _graph, damage.bytes_of),
    Reader("setting", corpus("settings"), _setting, damage.bytes_of),
    Reader("profile", corpus("profiles"), _file(lambda path: profiles.load(str(path)), "p.yaml"), damage.bytes_of),
    Reader("claims", corpus("claims"), _file(lambda path: claims.load(str(path)), "c.yaml"), damage.bytes_of),
    Reader("study", corpus("studies"), _study, damage.bytes_of),
    Reader("attempts", _lines, _attempts, damage.json_of, batch=20, prepare=_run_folder),
    Reader("campaign", corpus("campaigns"), _campaign, damage.json_of, prepare=_run_folder),
    Reader("readings", corpus("readings"), _readings, damage.lines_of, prepare=_run_folder),
    Reader("summary", _recorded("paced/sub0/stdout"), _record("stdout", "sub0"), damage.json_of, prepare=_recording),
    Reader("meters", _recorded("paced/pub0/meters.json"), _record("meters.json", "pub0"), damage.json_of, prepare=_recording),
    Reader("fleet", *_tool("discovery"), damage.json_of),
    Reader("slow samples", lambda: [b"publisher,at_us,delay_us\n0,2000,900\n"], _slow_samples, damage.bytes_of),
    Reader("arrivals", _recorded("outage/sub0/arrivals.csv"), _outage("sub0/arrivals.csv"), damage.bytes_of),
    Reader("outage", _recorded("outage/outage.json"), _outage("outage.json"), damage.json_of),
    Reader("links-over-time", _recorded("outage/links.json"), _outage("links.json"), damage.json_of),
    Reader("node-links", _answers, _node_answer, damage.bytes_of),
    Reader("iperf3", *_tool("tcp-stream"), damage.json_of),
    Reader("transactions", *_tool("tcp-crr"), damage.json_of),
    Reader("wrk", *_tool("http"), damage.bytes_of),
    Reader("ping", *_tool("ping"), damage.bytes_of),
    Reader("histograms", _logs, _participant, damage.bytes_of),
    Reader("logs", corpus("logs"), _connext, damage.bytes_of),
    Reader("osrf", corpus("osrf"), _osrf, damage.bytes_of),
    Reader("mcap", _mcap, _file(_recorded_application, "robot.mcap"), damage.bytes_of),
    Reader("sqlite", _sqlite, _file(_recorded_application, "robot.db3"), damage.bytes_of),
    Reader("credentials", _credential_seeds, _credential, _damaged_credential, prepare=_copy_credentials),
    Reader("kubeconfig", corpus("kubeconfigs"), _file(lambda path: kubeconfig.load(path, None), "k"), damage.bytes_of),
    Reader("kubernetes", corpus("kubernetes"), _answer, damage.json_of),
    Reader("metrics", corpus("metrics"), _metrics, damage.json_of),
    Reader("processes", corpus("processes"), _processes, damage.json_of),
    Reader("meter", corpus("meters"), _meter, damage.json_of),
    Reader("packets", _recorded("packets/*.pcap"), _packets, damage.bytes_of),
    Reader("perf", _recorded("perf/short.txt"), _perf, damage.bytes_of),
    Reader("cpu-profile", _recorded("perf/profile.json"), _file(_cpu_profile, profile.FILE), damage.json_of),
    Reader("packet-handling", corpus("packet-handling"), _packet_handling, damage.json_of),
    Reader("middleware-config", corpus("xml"), _file(lambda path: config_checksum("cyclonedds", str(path)), "m.xml"), damage.bytes_of),
    Reader("json", corpus("campaigns"), _json, damage.json_of),
    Reader("testbed", corpus("testbeds"), _selected, damage.json_of),
]  # fmt: skip
