"""Topics without a period or with differing sizes become schedules: a part of the recording, as long as a trial."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k8sdds.campaign import applications, preflight
from k8sdds.campaign.expansion import expand
from k8sdds.importing import recorded_application, recorded_windows
from k8sdds.importing.recorded_topics import Topic
from k8sdds.importing.recorded_windows import Windows
from k8sdds.model import schedule_file
from tests import recordings
from tests.conftest import Command
from tests.recordings import Recorded, bursts, periodic, qos
from tests.unit import memory

NS = 10**9


def video(seconds: float = 20, seed: int = 1, **settings: object) -> Recorded:
    """Return a topic at 25 Hz whose key frames are large."""
    random_ = random.Random(seed)
    sizes = (50_000 if i % 25 == 0 else random_.randint(900, 1100) for i in itertools.count())
    times = [time for time, _ in periodic(25, 0, seconds).messages]
    return Recorded(list(zip(times, sizes, strict=False)), **settings)  # type: ignore[arg-type]


def schedules(path: Path, topics: recordings.Topics) -> dict[str, str]:
    recorded = recordings.mcap(path / "robot.mcap", topics)
    return dict(recorded_application.write("mine", recorded, prefix="mine").schedules)


def samples(text: str) -> tuple[int, list[tuple[int, int]]]:
    """Return the period in µs and the samples of a file, which is valid."""
    schedule_file.parse(text)
    first, *lines = (line for line in text.splitlines() if not line.startswith("#"))
    return int(first.split()[1]), [(int(time), int(size)) for time, size in map(str.split, lines)]


def positions(part: list[tuple[int, int]], topic: Recorded) -> list[int]:
    """Return the numbers of the messages from which on a topic has this part."""
    times, sizes = zip(*topic.messages, strict=True)
    return [
        first
        for first in range(len(times) - len(part) + 1)
        if part
        == [
            ((time - times[first]) // 1000, max(size, 28))
            for time, size in zip(times[first : first + len(part)], sizes[first:], strict=False)
        ]
    ]


def any_like_the_whole(topic: Recorded, length_ns: int, rate: float, mean: float) -> bool:
    """Return whether one of the parts of a topic that follow each other has its rates within 25 %."""
    first, found = 0, False
    for number, (time, _) in enumerate(topic.messages):
        lasting = time - topic.messages[first][0]
        if lasting < length_ns:
            continue
        seconds = (lasting if lasting - length_ns > NS / rate else length_ns) / NS
        total = sum(max(size, 28) for _, size in topic.messages[first:number])
        ratios = ((number - first) / seconds / rate, total / seconds / (rate * max(mean, 28)))
        found = found or all(0.8 <= ratio <= 1.25 for ratio in ratios)
        first = number
    return found


# -- which part -------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2 * NS), st.integers(36, 90_000)), min_size=2, max_size=200),
    st.integers(1, 20),
)
def test_a_schedule_is_a_part_of_the_recording(steps: list[tuple[int, int]], seconds: int) -> None:
    times = itertools.accumulate(step for step, _ in steps)
    topic = Recorded([(time, size) for time, (_, size) in zip(times, steps, strict=True)])
    span_ns = topic.messages[-1][0] - topic.messages[0][0]
    if not span_ns:
        return
    rate = (len(steps) - 1) * NS / span_ns
    mean = sum(size for _, size in topic.messages) / len(steps)
    windows = Windows(seconds * NS, rate, mean)
    for time, size in topic.messages:
        windows.add(time, size, jumped=False)
    text = windows.text("/a")
    if not text:
        assert rate > 1e6 or not any_like_the_whole(topic, seconds * NS, rate, mean)
        return
    period_us, found = samples(text)
    firsts = positions(found, topic)
    assert firsts and found[0][0] == 0
    if span_ns < seconds * NS:
        assert (firsts[0], len(found)) == (0, len(steps))
        assert len(found) * 1e6 / period_us == pytest.approx(rate, rel=0.01) or period_us < 1000
    else:
        # All that was recorded within the period, and nothing of the time after it. A pause at its end makes it longer.
        start_ns = topic.messages[firsts[-1]][0]
        later = [time - start_ns for time, _ in topic.messages[firsts[-1] + len(found) :]]
        assert period_us >= seconds * 10**6 and all(time >= (period_us - 1) * 1000 for time in later)
        assert period_us == seconds * 10**6 or later[0] <= period_us * 1000
        assert 0.8 < len(found) * 1e6 / period_us / rate < 1.26


def test_the_part_is_like_the_whole_recording(tmp_path: Path) -> None:
    """An idle robot sends little, then much; neither is what it sends on average."""
    idle, busy = video(30, seed=1).messages, video(30, seed=2).messages
    usual = video(30, seed=3).messages
    topic = Recorded(
        [
            *((time, size // 10) for time, size in idle),
            *((time + 30 * NS, size * 2) for time, size in busy),
            *((time + 60 * NS, size) for time, size in usual),
        ]
    )
    (text,) = schedules(tmp_path, {"/camera": topic}).values()
    _, found = samples(text)
    (first,) = positions(found, topic)
    assert first >= 60 * 25 and "such parts, the one most like the whole topic" in text


def test_a_pause_that_is_longer_than_a_trial_belongs_to_a_part(tmp_path: Path) -> None:
    (text,) = schedules(tmp_path, {"/events": bursts(500, 20, 10_000, 30)}).values()
    period_us, found = samples(text)
    assert (period_us, len(found)) == (10_000_000, 20)
    assert "2.00 samples and 1000 bytes per second" in text


def test_trials_are_as_long_as_the_longest_part(tmp_path: Path) -> None:
    """A topic with longer pauses than a trial may have, and one of which trials would send two bursts, have rates."""
    topics = {
        "/events": bursts(500, 20, 7300, 30), "/often": bursts(500, 20, 5100, 40), "/rare": bursts(500, 85, 80_000, 10),
        "/video": video(),
    }  # fmt: skip
    recorded = recordings.mcap(tmp_path / "robot.mcap", topics)
    written = recorded_application.write("mine", recorded, prefix="mine")
    assert "duration_s: 7.3 " in written.text
    assert set(written.schedules) == {"mine-events.txt", "mine-video.txt"}
    (tmp_path / "mine.yaml").write_text(written.text)
    for name, text in written.schedules.items():
        (tmp_path / name).write_text(text)
    notes = preflight.notes(expand(applications.load_experiment(str(tmp_path / "mine.yaml"))))
    assert not any("multiple of" in note for note in notes)


def test_no_part_contains_a_jump_of_the_clock() -> None:
    topic = Topic("/a", "", windows=Windows(2 * NS, 20, 100))
    for start in (0, 10**18, 5):
        for i in range(25):
            topic.add(start + i * NS // 20, 100 + i)
    assert topic.jumps == 2 and topic.windows
    period_us, found = samples(topic.windows.text("/a"))
    # No part is as long as a trial: the first of the longest ones is used, with its own rate.
    assert (period_us, len(found)) == (1_250_000, 25) and [size for _, size in found] == list(range(100, 125))


def test_messages_out_of_order_are_sent_when_the_newest_one_was() -> None:
    topic = Topic("/a", "", windows=Windows(10 * NS, 10, 100))
    for index in range(40):
        topic.add((index ^ 1) * NS // 10, 100 + index)
    assert topic.windows
    _, found = samples(topic.windows.text("/a"))
    assert [time for time, _ in found] == sorted(time for time, _ in found)


def test_the_number_of_samples_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_windows, "MAX_SAMPLES", 50)
    windows = Windows(10 * NS, 100, 64)
    for i in range(1000):
        windows.add(i * NS // 100, 64, jumped=False)
    assert samples(windows.text("/a")) == (500_000, [(i * 10_000, 64) for i in range(50)])


def test_recordings_of_any_length_take_no_more_memory() -> None:
    windows = Windows(NS // 10, 100_000, 5e6)
    # Two parts of 10,000 messages, of 16 bytes each.
    with memory.at_most(1 << 20):
        for i in range(100_000):
            windows.add(i * 10_000, 5_000_000, jumped=False)
    assert len(samples(windows.text("/a"))[1]) == 10_000


@pytest.mark.parametrize("size", [4, 80 << 20])
def test_sizes_beyond_the_limits_become_the_limit(size: int) -> None:
    windows = Windows(NS, 2, size)
    for i in range(5):
        windows.add(i * NS // 2, size, jumped=False)
    assert {each for _, each in samples(windows.text("/a"))[1]} == {min(max(size, 36), 64 << 20)}


# -- which topics -----------------------------------------------------------------------------------------


def test_topics_with_a_rate_and_a_size_have_no_schedule(tmp_path: Path) -> None:
    alike = Recorded([(time, 1000 + i % 100) for i, (time, _) in enumerate(periodic(50, 0, 10).messages)])
    topics = {
        "/periodic": periodic(20, 100, jitter=0.2), "/alike": alike, "/video": video(), "/bursts": bursts(100, 10, 500),
    }  # fmt: skip
    topics["/several"] = Recorded(bursts(100, 10, 500).messages, [qos()] * 3)
    recorded = recordings.mcap(tmp_path / "robot.mcap", topics)
    written = recorded_application.write("mine", recorded, prefix="mine")
    assert set(written.schedules) == {"mine-video.txt", "mine-bursts.txt", "mine-several.txt"}
    for name in topics:
        flow = written.text.split(f"- name: {name[1:]}\n")[1].split("deadline_ms")[0]
        assert (
            ("schedule:" in flow)
            == (name in ("/video", "/bursts", "/several"))
            == ("payload_bytes" not in flow)
        )
    assert "3.00 s from" in written.schedules["mine-bursts.txt"] and "duration_s: 3 " in written.text
    assert "/video, std_msgs/msg/String, of robot.mcap" in written.schedules["mine-video.txt"]


def test_names_of_topics_cannot_leave_the_comment_of_a_file(tmp_path: Path) -> None:
    (text,) = schedules(tmp_path, {"/a\nperiod 5\u2028 \x1b[31m": bursts(100, 10, 500)}).values()
    assert samples(text)[0] == 3_000_000 and "\x1b" not in text


# -- the files --------------------------------------------------------------------------------------------


def test_the_files_are_next_to_the_application(tmp_path: Path, k8sdds: Command) -> None:
    recordings.rosbag2(tmp_path / "bag", {"/video": video(), "/imu": periodic(50, 320)})
    (tmp_path / "robots").mkdir()
    command = ("init", "application", "my-robot", "--from", "bag", "-o", "robots/mine.yaml")
    done = k8sdds(*command)
    assert done.returncode == 0, done.stderr
    assert "Wrote robots/mine.yaml and 1 file with schedules. Next: " in done.stderr
    loaded = applications.load(str(tmp_path / "robots/mine.yaml"))
    camera = next(flow for flow in loaded.flows if flow.name == "video")
    assert camera.schedule == str(tmp_path / "robots/mine-video.txt")
    assert (camera.payload_bytes, camera.rate) == (50_000, 25)
    experiment = applications.experiment(loaded)
    _, schedule = schedule_file.read(camera.schedule)
    assert schedule.period_us == experiment.duration_s * 10**6
    assert all(f"flow video schedule {schedule.word()} " in cell.graph for cell in expand(experiment).cells)

    (tmp_path / "robots/mine.yaml").unlink()
    refused = k8sdds(*command)
    assert refused.returncode == 2 and "robots/mine-video.txt exists" in refused.stderr
    assert not (tmp_path / "robots/mine.yaml").exists()
    assert k8sdds(*command, "--force").returncode == 0

    shown = k8sdds("init", "application", "--from", "bag", "-o", "-")
    assert "schedule:" not in shown.stdout and "# the mean, because sizes differ" in shown.stdout
