"""Recordings of ROS 2 become applications, whatever wrote and compressed them; damaged ones have an error."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import sqlite3
import struct
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from k8sdds.campaign import applications, trial_length
from k8sdds.campaign.expansion import expand
from k8sdds.campaign.racing import searched
from k8sdds.importing import recorded_application, recording
from k8sdds.importing.recorded_topics import MAX_EXACT, MAX_PROFILES, Distribution, Topic
from k8sdds.model.application import MAX_FLOWS, Application
from k8sdds.system import yaml_text
from k8sdds.system.errors import InputError
from k8sdds.system.reading import UnreadableError
from tests import recordings
from tests.conftest import Command
from tests.recordings import Recorded, bursts, periodic, qos
from tests.unit import memory

ROBOT = recordings.robot()
WRITERS: dict[str, Callable[[Path, recordings.Topics], Path]] = {
    **{f"rosbag2 {kind}": lambda path, topics, kind=kind: recordings.rosbag2(path / "bag", topics, kind)
       for kind in recordings.ROSBAG2},
    **{f"mcap {kind}": lambda path, topics, kind=kind: recordings.mcap(path / "bag.mcap", topics, kind)
       for kind in recordings.MCAP},
    "numbers of QoS": lambda path, topics: recordings.rosbag2(path / "bag", topics, "mcap", version=8),
    "a file of a folder": lambda path, topics: next(recordings.rosbag2(path / "bag", topics).glob("*.db3")),
}  # fmt: skip


def application(text: str) -> Application:
    return yaml_text.parse(text, Application, "written.yaml")


def text_from(path: Path) -> str:
    """Return an application whose flows all have rates."""
    return recorded_application.write("mine", path).text


def text_with(folder: Path, topics: recordings.Topics) -> str:
    """Return the application of a recording with these topics."""
    return text_from(recordings.mcap(folder / "robot.mcap", topics))


def written(folder: Path, topics: recordings.Topics) -> Application:
    return application(text_with(folder, topics))


# -- what is read -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", WRITERS)
def test_every_writer_and_compression_gives_the_same_topics(kind: str, tmp_path: Path) -> None:
    found = recording.read(WRITERS[kind](tmp_path, ROBOT))
    # Some writers of MCAP name a topic only with its first message.
    assert set(ROBOT) - {"/never"} <= set(found) <= set(ROBOT)
    for name, topic in found.items():
        sent = ROBOT[name]
        times = [time for time, _ in sent.messages]
        assert topic.type == sent.type
        assert topic.sizes.counts == Counter(size for _, size in sent.messages)
        assert topic.intervals.counts == Counter(b - a for a, b in itertools.pairwise(times))
        assert len(topic.offers) == len(sent.qos)
        assert topic.reliability == ("best-effort" if sent.qos[0].reliability.value == 2 else "reliable")
        assert topic.offered("history") == {f"keep-last {sent.qos[0].depth}"}
        latched = sent.qos[0].durability.value == 1
        assert topic.offered("durability") == {"transient-local" if latched else "volatile"}


def test_the_files_of_a_folder_are_read_in_the_order_in_which_they_were_written(tmp_path: Path) -> None:
    ten = [periodic(10, 100).messages[i * 2 : i * 2 + 2] for i in range(11)]
    for number, messages in enumerate(ten):
        recordings.mcap(tmp_path / f"bag_{number}.mcap", {"/a": Recorded(messages)})
    (topic,) = recording.read(tmp_path).values()
    assert (topic.sizes.number, topic.jumps) == (22, 0) and topic.regular


MESSAGES = st.lists(st.tuples(st.integers(0, 10**9), st.integers(4, 2000)), min_size=1, max_size=60)


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(st.from_regex(r"\A(/[a-zA-Z_0-9~{}]{1,12}){1,4}\Z"), MESSAGES, min_size=1, max_size=20)
)
def test_all_that_is_recorded_becomes_flows_or_is_named(tmp_path_factory, topics) -> None:
    folder = tmp_path_factory.mktemp("recording")
    sent = {
        name: Recorded(
            [(sum(step for step, _ in messages[: i + 1]), size) for i, (_, size) in enumerate(messages)]
        )
        for name, messages in topics.items()
    }
    path = recordings.mcap(folder / "robot.mcap", sent)
    found = recording.read(path)
    for name, topic in found.items():
        assert topic.sizes.number == len(topics[name])
        assert topic.sizes.total == sum(size for _, size in topics[name])
        assert topic.intervals.total == sum(step for step, _ in topics[name][1:])
    try:
        text = text_from(path)
    except InputError as error:
        assert all(len(messages) < 10 or topic_rate(messages) < 1 for messages in topics.values()), error
        return
    loaded = application(text)
    assert len(loaded.flows) <= MAX_FLOWS
    for name in sent:
        assert f"# {name}, " in text or f"#   {name}: " in text


def topic_rate(messages: list[tuple[int, int]]) -> float:
    steps = [step for step, _ in messages[1:]]
    return len(steps) * 1e9 / sum(steps) if sum(steps) else 0


@given(st.lists(st.integers(0, 10**13), min_size=1, max_size=300), st.sampled_from([0, 1, 5, 50, 99, 100]))
def test_percentiles_are_those_of_the_values(values: list[int], percent: int) -> None:
    exact, many = Distribution(), Distribution()
    for value in values:
        exact.add(value)
    rank = max(-(-percent * len(values) // 100), 1)
    assert exact.percentile(percent) == sorted(values)[rank - 1]
    assert (exact.low, exact.high, exact.total) == (min(values), max(values), sum(values))
    for value in [*range(10**6, 10**6 + MAX_EXACT + 1), *values]:
        many.add(value)
    assert len(many.counts) < 500
    everything = sorted([*range(10**6, 10**6 + MAX_EXACT + 1), *values])
    rank = max(-(-percent * len(everything) // 100), 1)
    assert many.percentile(percent) == pytest.approx(everything[rank - 1], rel=0.006)


# -- what is written --------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    rate=st.floats(5, 400), size=st.integers(36, 50_000), publishers=st.integers(1, 4), reliable=st.booleans()
)
def test_a_periodic_topic_is_a_flow(tmp_path_factory, rate, size, publishers, reliable) -> None:
    topics = {"/a/B_c": periodic(rate, size, qos=[qos(reliable)] * publishers)}
    (flow,) = written(tmp_path_factory.mktemp("recording"), topics).flows
    assert (flow.name, flow.payload_bytes, flow.publishers) == ("a-b-c", size, 1)
    assert flow.rate == pytest.approx(rate, rel=0.006)
    assert flow.reliability == ("reliable" if reliable else "best-effort")
    assert flow.deadline_ms == pytest.approx(1000 / rate, rel=0.006)


def test_a_robot_of_30_topics_is_an_application(tmp_path: Path, k8sdds: Command) -> None:
    recordings.rosbag2(tmp_path / "bag", ROBOT, "mcap-chunks")
    done = k8sdds("init", "application", "my-robot", "--from", "bag")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [
        "reading bag", "Wrote my-robot.yaml. Next: k8sdds recommend my-robot.yaml --dry-run",
    ]  # fmt: skip
    text = (tmp_path / "my-robot.yaml").read_text()
    flows = applications.load(str(tmp_path / "my-robot.yaml")).flows
    assert len(flows) == 30
    kept = {name: topic for name, topic in ROBOT.items() if f"# {name}, " in text}
    assert len(kept) == 30
    # What the application sends is what the topics of the recording sent together.
    for unit in (lambda size: 1, lambda size: size):
        sent = sum(sum(unit(size) for _, size in t.messages[1:]) / span_s(t) for t in kept.values())
        flow_sum = sum(flow.rate * unit(flow.payload_bytes) for flow in flows)
        assert flow_sum == pytest.approx(sent, rel=0.01)


def span_s(topic: Recorded) -> float:
    return (topic.messages[-1][0] - topic.messages[0][0]) / 1e9


def test_the_proposed_limits_can_be_decided(tmp_path: Path) -> None:
    path = recordings.rosbag2(tmp_path / "bag", ROBOT)
    experiment = searched(application(text_from(path)))
    configurations = len(expand(experiment).candidates.measurable)
    assert configurations > 10
    assert trial_length.undecidable(experiment, configurations) == []
    assert experiment.duration_s <= 5


def test_topics_of_a_namespace_are_of_one_node(tmp_path: Path) -> None:
    topics = ("/Front/image", "/Front/info", "/lidar/points", "/odom")
    loaded = written(tmp_path, {topic: periodic(50, 64) for topic in topics})
    assert {name: (set(node.publishes), set(node.subscribes)) for name, node in loaded.nodes.items()} == {
        "front": ({"front-image", "front-info"}, set()), "lidar": ({"lidar-points"}, set()), "robot": ({"odom"}, set()),
        "receiver": (set(), {"front-image", "front-info", "lidar-points", "odom"}),
    }  # fmt: skip
    for spaces in (["receiver", "a"], [f"a{i}" for i in range(9)]):
        loaded = written(tmp_path, {f"/{space}/b": periodic(50, 64) for space in spaces})
        assert list(loaded.nodes) == ["robot", "receiver"]


def test_the_largest_flows_are_kept(tmp_path: Path) -> None:
    text = text_with(tmp_path, {f"/a{i}": periodic(50, 36 + i, 0.3) for i in range(501)})
    assert {flow.name for flow in application(text).flows} == {f"a{i}" for i in range(1, 501)}
    assert "#   /a0: the 500 largest flows are above" in text


@pytest.mark.parametrize(
    ("name", "topic", "reason"),
    [
        ("/rosout", periodic(10, 100), "/rosout: log messages of the nodes (30 messages)"),
        ("/ns/tf_static", periodic(10, 100), "/ns/tf_static: transforms that are sent once (30 messages)"),
        ("/parameter_events", periodic(10, 100), "changes of parameters"),
        ("/map", Recorded([(0, 999)], [qos(latched=True)]), "/map: latched: 1 message"),
        ("/few", periodic(3, 50), "/few: 9 messages"),
        (
            "/slow",
            periodic(0.5, 50, 40),
            "/slow: 0.5 messages of 50 bytes per second, too few in a trial of seconds",
        ),
        (
            "/phases",
            Recorded([(phase * 63 * 10**9 + i * 10**8, 50) for phase in range(3) for i in range(30)]),
            "/phases: 0.69 messages of 50 bytes per second (10.0 per second without intervals above 5 s), too few",
        ),
        ("/same", Recorded([(7, 50)] * 20), "/same: 20 messages at the same time"),
    ],
)
def test_what_is_not_a_flow_is_left_out_with_the_reason(
    name: str, topic: Recorded, reason: str, tmp_path: Path
) -> None:
    text = text_with(tmp_path, {"/flow": periodic(10, 100), name: topic})
    assert [flow.name for flow in application(text).flows] == ["flow"]
    assert f"# Left out:\n#   {name}: " in text and reason in text
    with pytest.raises(InputError, match="has no topic with a flow") as refused:
        text_with(tmp_path, {name: topic})
    assert name in refused.value.message


def test_rates_of_irregular_topics_say_so(tmp_path: Path) -> None:
    paused = [
        *periodic(50, 100, 4).messages,
        *((time + 60 * 10**9, size) for time, size in periodic(50, 100, 4).messages),
    ]
    topics = {
        "/regular": periodic(20, 100, jitter=0.2),
        "/bursts": bursts(100, 10, 500),
        "/paused": Recorded(paused),
    }
    text = text_with(tmp_path, topics)
    flows = {flow.name: flow for flow in application(text).flows}
    parts = {part.split("\n")[0]: part for part in text.split("- name: ")}
    assert "irregular" in parts["bursts"] and "irregular" not in parts["regular"] + parts["paused"]
    # 10 messages every 500 ms; the pause is not part of the rate of a topic that was published at 50 Hz.
    assert flows["bursts"].rate == pytest.approx(20, rel=0.06) and flows["paused"].rate == pytest.approx(
        50, rel=0.01
    )
    assert "90 % of the messages in bursts" in text.split("- name: bursts")[0].split("# /bursts")[1]
    assert "max 56020 ms (longest pause)" in text


@pytest.mark.parametrize(
    ("topic", "line"),
    [
        (periodic(10, 5), "payload_bytes: 36  # the least that k8sdds measures; recorded: 5"),
        (periodic(10, 80 << 20, 1.2), "payload_bytes: 67108864  # the most that k8sdds measures; recorded: 83,886,080"),
        (periodic(4e7, 64, 1e-6), "rate: 10000000  # the most that k8sdds measures; recorded: 40,000,000"),
    ],
)  # fmt: skip
def test_values_beyond_the_limits_say_what_was_recorded(topic: Recorded, line: str, tmp_path: Path) -> None:
    text = text_with(tmp_path, {"/a": topic})
    assert line in text and application(text)


def test_differing_sizes_are_those_of_nearly_all_messages_or_their_mean(tmp_path: Path) -> None:
    times = [time for time, _ in periodic(50, 0, 10).messages]
    alike = Recorded([(time, 1000 + i % 100) for i, time in enumerate(times)])
    video = Recorded([(time, 50_000 if i % 25 == 0 else 1000) for i, time in enumerate(times)])
    text = text_with(tmp_path, {"/alike": alike, "/video": video})
    sizes = {flow.name: flow.payload_bytes for flow in application(text).flows}
    assert sizes == {"alike": 1098, "video": 2960}
    assert (
        "payload_bytes: 2960  # the mean" in text
        and "size: min 1,000, p50 1,000, p99 50,000, max 50,000" in text
    )


def test_a_jump_of_the_clock_is_no_interval() -> None:
    topic = Topic("/a", "")
    for time_ns in (5 * 10**9, 5 * 10**9 + 10, 20, 30, 10**18, 10**18 + 10):
        topic.add(time_ns, 4)
    assert (topic.jumps, topic.intervals.counts) == (2, Counter({10: 3}))


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=300))
def test_messages_in_any_order_take_the_time_until_the_newest(times_ns: list[int]) -> None:
    topic = Topic("/a", "")
    for time_ns in times_ns:
        topic.add(time_ns, 4)
    assert (topic.jumps, topic.intervals.number) == (0, len(times_ns) - 1)
    assert topic.intervals.total == max(times_ns) - times_ns[0]
    assert topic.rate * topic.intervals.total == pytest.approx(
        topic.intervals.number * 1e9 * bool(topic.rate)
    )


@pytest.mark.parametrize(
    "profiles", ["", "[", "- 7", "reliability: 1", "- {reliability: 9, history: x}", "&a [*a]"]
)
def test_qos_that_is_not_known_is_not_stated(profiles: str, tmp_path: Path) -> None:
    topic = Topic("/a", "")
    topic.offer(profiles)
    assert topic.reliability == "reliable" and not topic.offered("reliability") | topic.offered("history")
    text = text_with(tmp_path, {"/a": periodic(10, 64, qos=[])})
    assert "reliability: reliable  # not recorded" in text and "offered: not recorded" in text


def offering(folder: Path, texts: Iterable[str]) -> Path:
    """Write a recording in which a topic is described again and again, with these texts as its QoS profiles."""
    path, key = folder / "robot.mcap", text_of("offered_qos_profiles")
    messages = (record(5, struct.pack("<HIQQ", 1, 0, i * 10**8, 0) + bytes(64)) for i in range(30))
    pairs = (key + text_of(text) for text in texts)
    topics = (record(4, CHANNEL + struct.pack("<I", len(pair)) + pair) for pair in pairs)
    path.write_bytes(recording.MCAP + b"".join((*topics, *messages)) + FOOTER)
    return path


@pytest.mark.parametrize("profiles", ["[", "- 7", "reliability: 1", "- " + "x" * MAX_PROFILES])
def test_qos_that_cannot_be_read_is_not_called_missing(profiles: str, tmp_path: Path) -> None:
    text = text_from(offering(tmp_path, [profiles]))
    assert "offered: not readable" in text and "reliability: reliable  # not readable: the default" in text


def test_repeated_qos_is_parsed_once(tmp_path: Path) -> None:
    profiles = "- {reliability: 2}\n" * 3000
    (topic,) = recording.read(offering(tmp_path, [profiles] * 300)).values()
    assert 300 * len(profiles) > recording.MAX_QOS_CHARACTERS
    assert len(topic.offers) == 3000 and not topic.is_qos_unreadable


def test_different_qos_is_parsed_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MAX_QOS_CHARACTERS", 20 * recording.MIN_QOS_CHARACTERS)
    different = ["- {reliability: 2}\n" * number for number in range(1, 31)]
    (topic,) = recording.read(offering(tmp_path, different)).values()
    assert len(topic.offers) == 20 and topic.is_qos_unreadable


def test_names_of_topics_cannot_leave_their_comment(tmp_path: Path) -> None:
    names = ["/a\nname: b", "/\x1b[31m", "/" + "x" * 5000, "/é\u2028é", "/a/name:_b", "/#"]
    text = text_with(tmp_path, {name: periodic(10, 100) for name in names})
    loaded = application(text)
    assert loaded.name == "mine" and len(loaded.flows) == len(names)
    assert "\x1b" not in text and max(map(len, text.splitlines())) < 420


# -- recordings that are not read -------------------------------------------------------------------------


def record(kind: int, content: bytes, size: int | None = None) -> bytes:
    return struct.pack("<BQ", kind, len(content) if size is None else size) + content


def text_of(text: str) -> bytes:
    return struct.pack("<I", len(text)) + text.encode()


def chunk(compression: str, data: bytes, size: int) -> bytes:
    return record(
        6, struct.pack("<QQQI", 0, 0, size, 0) + text_of(compression) + struct.pack("<Q", len(data)) + data
    )


FOOTER = record(2, bytes(20)) + recording.MCAP
CHANNEL = struct.pack("<HH", 1, 0) + text_of("/a") + text_of("cdr")
ZEROS = bytes(1 << 20)
HOSTILE = {
    "nothing": (b"", "is not a recording"),
    "text": (b"name: robot\n", "is not a recording"),
    "ROS 1": (b"#ROSBAG V2.0\n", "is a recording of ROS 1"),
    "only the magic number": (recording.MCAP, "it has no footer: the recorder was interrupted"),
    "a record of 8 EiB": (recording.MCAP + record(5, b"", 1 << 63), "a record of 9,223,372,036,854,775,808 bytes"),
    "a text of 4 GiB": (recording.MCAP + record(4, bytes(4) + b"\xff" * 4) + FOOTER, "a text has 4,294,967,295 bytes"),
    "metadata without end": (
        recording.MCAP + record(4, CHANNEL + struct.pack("<I", 1 << 31)) + FOOTER, "it ends within a record",
    ),
    "a message without topic": (recording.MCAP + record(5, bytes(22)) + FOOTER, "a message belongs to no topic"),
    "a short message": (recording.MCAP + record(5, bytes(3)) + FOOTER, "a message belongs to no topic"),
    "an unknown compression": (recording.MCAP + chunk("rar", b"", 0) + FOOTER, "compression 'rar' is unknown"),
    "a bomb": (recording.MCAP + chunk("zstd", b"", 1 << 62) + FOOTER, "more than 1000 times its size"),
    "many bombs": (
        recording.MCAP + chunk("zstd", zstandard.compress(record(9, ZEROS)), 9 + (1 << 20)) * 3000 + FOOTER,
        "more than 1000 times its size",
    ),
    "a chunk that is shorter than it states": (
        recording.MCAP + chunk("lz4", lz4.frame.compress(b"1234"), 1 << 20) + FOOTER, "is damaged",
    ),
    "a chunk that is not compressed": (recording.MCAP + chunk("zstd", b"1234", 9) + FOOTER, "is damaged"),
    "a chunk that is not lz4": (recording.MCAP + chunk("lz4", bytes(40), 9) + FOOTER, "is damaged"),
    "a compressed text": (zstandard.compress(b"name: robot\n"), "is not a recording"),
    "only the header of SQLite": (recording.SQLITE + bytes(84), "is damaged"),
    "a message that states 8 EiB": (
        recording.MCAP + record(4, CHANNEL + bytes(4))
        + record(5, struct.pack("<HIQQ", 1, 0, 0, 0) + recording.ZSTD + b"\xe0" + b"\xff" * 8) + FOOTER,
        "a compressed message does not state its size",
    ),
    "too many topics": (
        recording.MCAP
        + b"".join(record(4, struct.pack("<HH", i, 0) + text_of(f"/{i}") + bytes(8)) for i in range(1001)) + FOOTER,
        "more than 1,000 topics",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_a_foreign_or_hostile_file_has_an_error(what: str, tmp_path: Path) -> None:
    data, message = HOSTILE[what]
    path = tmp_path / "robot.mcap"
    path.write_bytes(data)
    with memory.at_most(16 << 20), pytest.raises(UnreadableError) as refused:
        recording.read(path)
    assert message in refused.value.message and str(path) in refused.value.message and refused.value.remedy


DATABASES = {
    "another database": ("CREATE TABLE x(y)", "the tables of rosbag2 are missing"),
    "endless views": (
        "CREATE TABLE topics(id, name, type); CREATE VIEW messages AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT"
        " id + 1 FROM n) SELECT id, 1 AS topic_id, 1 AS timestamp, x'' AS data FROM n",
        "the tables of rosbag2 are missing",
    ),
    "computed data": (
        "CREATE TABLE topics(id, name, type); INSERT INTO topics VALUES (1, '/a', 't'); CREATE TABLE messages(topic_id,"
        " timestamp, data AS (zeroblob(900000000))); INSERT INTO messages VALUES (1, 1)",
        "too big",
    ),
    "text as time": (
        "CREATE TABLE topics(id, name, type); INSERT INTO topics VALUES (1, '/a', 't');"
        "CREATE TABLE messages(topic_id, timestamp, data); INSERT INTO messages VALUES (1, 'now', x'00')",
        "a message belongs to no topic, or has no time",
    ),
}


@pytest.mark.parametrize("what", DATABASES)
def test_a_foreign_or_hostile_database_has_an_error(what: str, tmp_path: Path) -> None:
    script, message = DATABASES[what]
    path = tmp_path / "robot.db3"
    with sqlite3.connect(path) as database:
        database.executescript(script)
    database.close()
    with pytest.raises(UnreadableError, match=message):
        recording.read(path)


def test_a_database_whose_schema_is_not_text_has_an_error(tmp_path: Path) -> None:
    path = next(recordings.rosbag2(tmp_path / "bag", {"/a": periodic(10, 100)}).glob("*.db3"))
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE topics", b"CREATE \xd5ABLE topics"))
    with pytest.raises(
        UnreadableError, match=r"is damaged: (its schema is not text|malformed database schema)"
    ):
        recording.read(path)


def test_paths_that_are_not_recordings(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        recording.read(tmp_path / "missing")
    with pytest.raises(InputError, match="has no files of one"):
        recording.read(tmp_path)
    os.mkfifo(tmp_path / "robot.mcap")
    for path in (tmp_path, tmp_path / "robot.mcap"):
        with pytest.raises(InputError, match="is not a recording"):
            recording.read(path)


@pytest.mark.parametrize("kind", WRITERS)
def test_an_incomplete_recording_has_an_error(kind: str, tmp_path: Path) -> None:
    path = WRITERS[kind](tmp_path, {"/a": periodic(50, 3000), "/b": periodic(10, 100)})
    (file,) = [path] if path.is_file() else [p for p in path.iterdir() if p.name != "metadata.yaml"]
    whole = file.read_bytes()
    for share in (0.1, 0.5, 0.9):
        file.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(UnreadableError, match="is damaged") as refused:
            recording.read(path)
        assert file.name in refused.value.message and "repair it" in refused.value.remedy


def wal(folder: Path) -> Path:
    """Write a recording in WAL mode whose last messages are in the write-ahead log, as after a crash."""
    folder.mkdir()
    path = next(recordings.rosbag2(folder / "bag", {"/a": periodic(10, 100)}).glob("*.db3"))
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE other(x)")
        database.commit()
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        last = database.execute("SELECT max(timestamp), topic_id FROM messages").fetchone()
        rows = [(last[1], last[0] + i * 10**8, bytes(50_000)) for i in range(1, 31)]
        database.executemany("INSERT INTO messages(topic_id, timestamp, data) VALUES (?, ?, ?)", rows)
        database.commit()
        crashed = folder / "crashed"
        crashed.mkdir()
        for end in ("", "-wal"):
            shutil.copy(f"{path}{end}", crashed)
    return crashed / path.name


@pytest.mark.parametrize("crashed", [False, True])
def test_reading_a_database_changes_nothing_next_to_it(crashed: bool, tmp_path: Path) -> None:
    path = wal(tmp_path / "recording")
    if not crashed:
        path.with_name(path.name + "-wal").unlink()
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    path.parent.chmod(0o555)
    try:
        (topic,) = recording.read(path).values()
    finally:
        path.parent.chmod(0o755)
    assert topic.sizes.number == (60 if crashed else 30)
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before


def test_a_database_with_changes_to_undo_is_incomplete(tmp_path: Path) -> None:
    path = next(recordings.rosbag2(tmp_path / "bag", {"/a": periodic(10, 100)}).glob("*.db3"))
    journal = path.with_name(path.name + "-journal")
    journal.write_bytes(bytes(512))
    assert recording.read(path)
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA cache_size = 1")
        database.execute("UPDATE messages SET data = zeroblob(5000)")
        left = journal.read_bytes()
    journal.write_bytes(left)
    with pytest.raises(UnreadableError, match=r"the recorder was interrupted, and left .*-journal"):
        recording.read(path)


def test_a_decompressed_copy_is_read_once(tmp_path: Path) -> None:
    path = recordings.rosbag2(tmp_path / "bag", {"/a": periodic(10, 100)}, "sqlite-files")
    (compressed,) = path.glob("*.zstd")
    (path / compressed.stem).write_bytes(zstandard.decompress(compressed.read_bytes(), 1 << 30))
    (topic,) = recording.read(path).values()
    assert (topic.sizes.number, topic.jumps) == (30, 0)


def test_errors_of_the_reader_are_not_called_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = recordings.mcap(tmp_path / "robot.mcap", {"/a": periodic(10, 100)})
    monkeypatch.setattr(Topic, "add", lambda *_: (_ for _ in ()).throw(RuntimeError("a defect")))
    with pytest.raises(RuntimeError, match="a defect"):
        recording.read(path)


@pytest.mark.parametrize("kind", [kind for kind in WRITERS if kind != "numbers of QoS"])
def test_messages_are_not_kept_in_memory(kind: str, tmp_path: Path) -> None:
    size = 12 << 20
    path = WRITERS[kind](tmp_path, {"/image": Recorded([(i * 10**8, size) for i in range(3)])})
    with memory.at_most(6 << 20):
        (topic,) = recording.read(path).values()
    assert topic.sizes.counts == {size: 3}


def test_progress_reaches_the_size_of_the_recording(tmp_path: Path) -> None:
    path = recordings.rosbag2(
        tmp_path / "bag", {"/image": Recorded([(i * 10**8, 2 << 20) for i in range(20)])}
    )
    seen: list[tuple[int, int]] = []
    recording.read(path, lambda done, total: seen.append((done, total)))
    (total,) = {total for _, total in seen}
    assert total == next(path.glob("*.db3")).stat().st_size
    assert [done for done, _ in seen] == sorted({done for done, _ in seen}) and seen[-1][0] > 0.9 * total


@pytest.mark.parametrize(
    "options", [["profile", "x", "--from", "."], ["application", "x", "--from", ".", "--like", "lidar"]]
)
def test_from_is_for_applications_alone(options: list[str], k8sdds: Command) -> None:
    done = k8sdds("init", *options)
    assert done.returncode == 2 and "--from describes an application" in done.stderr
