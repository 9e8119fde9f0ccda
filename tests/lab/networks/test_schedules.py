"""Recorded schedules in campaigns: what a recording has is sent again, and arrives with these sizes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from k8sdds.model import schedule_file
from k8sdds.results.run_folder import RunFolder
from tests import recordings
from tests.conftest import Command
from tests.measuring import experiment, last_attempts, measured
from tests.recordings import Recorded, periodic, qos

SMALL, LARGE, PERIOD_S = 1000, 40_000, 0.5
SAMPLES = [(0, SMALL), (20_000, LARGE), (20_000, SMALL), (40_000, LARGE), (60_000, LARGE)]
"""Two sizes, two samples at one time, and a pause of 440 ms."""
SWEEP = """\
  - networks: [host, flannel-vxlan]
    test: paced
    schedule: two-sizes.txt
    middleware: [cyclonedds, zenoh]
    subscribers: 2
"""


@pytest.mark.usefixtures("nothing_left")
def test_samples_arrive_with_the_sizes_of_the_file(k8sdds: Command, tmp_path: Path) -> None:
    text = schedule_file.text(round(PERIOD_S * 1e6), SAMPLES, ["two sizes and a pause"])
    (tmp_path / "two-sizes.txt").write_text(text)
    last = measured(k8sdds, tmp_path, experiment(SWEEP, baseline="host", duration_s=2 * PERIOD_S))
    assert len(last) == 4
    run = RunFolder.open(tmp_path / "out")
    (copy,) = (run.path / "schedules").glob("*/two-sizes.txt")
    assert copy.read_text() == text
    sent = 2 * len(SAMPLES)
    sizes = Counter(size for _, size in SAMPLES * 2)
    for record in last:
        assert (record["schedule"], record["payload_bytes"], record["rate"]) == ("two-sizes.txt", LARGE, 10)
        assert (record["scheduled"], record["sent"], record["received"]) == (sent, sent, 2 * sent)
        assert record["achieved_rate_percent"] == 100 and record["lost"] == 0
        # With so many samples of two sizes, no other number of each has so many bytes.
        assert set(record["link_bytes"]["delivered_bytes"].values()) == {
            sizes[SMALL] * SMALL + sizes[LARGE] * LARGE
        }
        assert record["link_bytes"]["delivered_samples"] == {"sub0": sent, "sub1": sent}
        publisher = run.raw(record["trial_id"], record["attempt"]) / "pub0" / "stdout"
        options = json.loads(publisher.read_text())["k8sdds"]["options"]
        assert options["schedule"] == str(copy.resolve()) and options["pubRate"] is None


@pytest.mark.long
@pytest.mark.usefixtures("nothing_left")
def test_a_recording_is_sent_again(k8sdds: Command, tmp_path: Path) -> None:
    """Its topics become an application, whose trials send the recorded messages of the part that was chosen."""
    video = [
        (time + 2_000_000 * (i % 7), 30_000 if i % 25 == 0 else 800 + i % 40)
        for i, (time, _) in enumerate(periodic(25, 0, 20).messages)
    ]
    topics = {"/video": Recorded(video, [qos(reliable=False)]), "/imu": periodic(50, 320)}
    recordings.rosbag2(tmp_path / "drive", topics)
    assert k8sdds("init", "application", "my-robot", "--from", "drive").returncode == 0
    chosen = ["networks=[host]", "middleware=[cyclonedds]", "receive_mode=[listener]", "message_bytes=[auto]"]
    done = k8sdds(
        "run", "my-robot.yaml", "--repeat", "1", "-o", "out", *(f"--set=choices.{each}" for each in chosen)
    )
    (record,) = last_attempts(tmp_path / "out")
    assert record["valid"], done.stderr
    sent = record["by_flow"]["video"]
    schedule = schedule_file.parse((tmp_path / "my-robot-video.txt").read_text())
    assert sent["scheduled"] == schedule.samples
    assert sent["subscribers"]["receiver"]["received"] + sent["lost"] == sent["sent"]
