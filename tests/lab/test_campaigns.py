"""Test whole campaigns as a user runs them: completed, interrupted, killed, resumed, failing."""

from __future__ import annotations

import html
import json
import random
import re
import shlex
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from k8sdds.results.run_folder import RunFolder
from k8sdds.system.paths import shared
from tests.conftest import Command, traces
from tests.lab.conftest import ONE_TRIAL, TRIALS
from tests.measuring import ENDS_S, attempts, measured, running, valid_attempts, wait_for_trial
from tests.sampling import sampled

pytestmark = pytest.mark.usefixtures("nothing_left")


def valid_trials(folder: Path) -> set[str]:
    return {record["trial_id"] for record in valid_attempts(folder)}


def test_the_command_in_the_report_reproduces_the_campaign(
    k8sdds: Command, small: Path, tmp_path: Path
) -> None:
    changes = ("--network", "weavenet", "--repeat", "2", "--duration", "0.1", "--set", "test=latency")
    planned = k8sdds("run", str(small), "-o", "out", *changes, "--dry-run")
    assert "nothing was measured" in planned.stdout and not (tmp_path / "out").exists()
    done = k8sdds("run", str(small), "-o", "out", *changes)
    assert done.returncode == 0 and "The baseline host is measured too" in done.stdout, done.stderr
    small.unlink()
    page = (tmp_path / "out" / "report" / "report.html").read_text()
    printed = shlex.split(html.unescape(re.search(r"<pre>(k8sdds run .*)</pre>", page)[1]))
    done = k8sdds(*printed[1:])
    assert done.returncode == 0, done.stderr
    (again,) = (tmp_path / "runs").iterdir()
    first, second = (RunFolder.open(folder).campaign for folder in (tmp_path / "out", again))
    assert [len(block) for block in first["blocks"]] == [2, 2]
    assert all(first[key] == second[key] for key in ("blocks", "trials", "seed", "experiment"))
    assert {record["network"] for record in attempts(again)} == {"host", "weavenet"}


@pytest.mark.parametrize(
    "settings",
    sampled(
        [
            (["payload_bytes=1048576", "rate=30", "subscribers=4", "test=paced"],),
            (["payload_bytes=1024", "rate=1000", "test=latency"],),
            (["publishers=2", "subscribers=3", "test=throughput"],),
            (["batch_bytes=8192", "payload_bytes=64", "test=throughput", "qos=batched"],),
            (["middleware=raw", "reliability=best-effort"],),
            (["receive_mode=[waitset, spin]", "layout=free"],),
            (["placement={pub0: 1, sub0: 0}", "nodes=3", "test=latency"],),
            (["networks=[host, {name: weavenet, mtu: 1376, label: weavenet-1376}]"],),
        ],
        every_run=2,
    ),
    ids=lambda settings: settings[0],
)
def test_every_setting_is_measured(k8sdds: Command, small: Path, tmp_path: Path, settings: list[str]) -> None:
    args = [word for setting in settings for word in ("--set", setting)]
    assert measured(k8sdds, tmp_path, small.read_text(), "--repeat", "1", "--duration", "0.5", *args)


# -- the end, in order and not -------------------------------------------------------------------------


def resumed(k8sdds: Command, tmp_path: Path) -> None:
    """Go on, and see that exactly the missing trials were measured."""
    before = attempts(tmp_path / "out")
    done_before = valid_trials(tmp_path / "out")
    done = k8sdds("run", "--resume", "out")
    assert done.returncode == 0, done.stderr
    records = attempts(tmp_path / "out")
    assert records[: len(before)] == before
    assert len(valid_trials(tmp_path / "out")) == TRIALS
    assert not done_before & {record["trial_id"] for record in records[len(before) :]}


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 5, marks=pytest.mark.long)]
)
def test_an_interrupted_campaign_stops_cleanly_and_resumes(
    k8sdds: Command, small: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    with running(tmp_path, str(small), "-o", "out", "--duration", "2") as process:
        wait_for_trial(process, 1)
        second = k8sdds("run", "--resume", "out")
        assert second.returncode == 2 and "another campaign is writing to out" in second.stderr
        wait_for_trial(process, 2)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=ENDS_S)
    assert process.returncode == code
    assert "continue: k8sdds run --resume out" in stderr
    assert 0 < len(valid_trials(tmp_path / "out")) < TRIALS
    resume_quickly(tmp_path / "out")
    resumed(k8sdds, tmp_path)
    complete = len(attempts(tmp_path / "out"))
    assert k8sdds("run", "--resume", "out").returncode == 0
    assert len(attempts(tmp_path / "out")) == complete


def resume_quickly(folder: Path) -> None:
    """Shorten the trials that are left: the test is about which, not how long."""
    path = folder / "campaign.json"
    campaign = json.loads(path.read_text())
    for trial in campaign["trials"].values():
        trial["duration_s"] = 0.2
    path.write_text(json.dumps(campaign))


def test_a_second_ctrl_c_stops_at_once(k8sdds: Command, small: Path, tmp_path: Path) -> None:
    with running(tmp_path, str(small), "-o", "out", "--duration", "20") as process:
        wait_for_trial(process, 1)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=ENDS_S)
    assert process.returncode == 130
    cleaned(k8sdds, tmp_path)


def cleaned(k8sdds: Command, tmp_path: Path) -> None:
    """`clean` takes all that is left; afterwards nothing is, which the fixture sees too."""
    left = list((tmp_path / "state-None/labs").glob("*.json"))
    done = k8sdds("clean")
    assert done.returncode == 0, done.stderr
    assert ("removed" in done.stdout) == bool(left)
    # What was in a sandbox ends with its holder, which ends when it reads the end of the killed command's pipe.
    deadline = time.monotonic() + 60
    while traces(tmp_path).processes and time.monotonic() < deadline:
        time.sleep(0.05)


def kill_and_clean(k8sdds: Command, small: Path, tmp_path: Path, after_s: float) -> None:
    with running(tmp_path, str(small), "-o", "out") as process:
        time.sleep(after_s)
        process.kill()
        process.communicate(timeout=ENDS_S)
    cleaned(k8sdds, tmp_path)
    if (tmp_path / "out" / "campaign.json").exists():
        resumed(k8sdds, tmp_path)


def test_killed_at_a_random_moment_it_can_be_cleaned_and_resumed(
    k8sdds: Command, small: Path, tmp_path: Path
) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    kill_and_clean(k8sdds, small, tmp_path, random.Random(seed).uniform(0.1, 5))


@pytest.mark.long
@pytest.mark.parametrize("tenths", range(2, 52, 2))
def test_killed_at_any_moment_it_can_be_cleaned_and_resumed(
    k8sdds: Command, small: Path, tmp_path: Path, tenths: int
) -> None:
    kill_and_clean(k8sdds, small, tmp_path, tenths / 10)


def test_a_trial_without_valid_attempt_is_kept_with_its_reason(
    k8sdds: Command, small: Path, tmp_path: Path
) -> None:
    """Two publishers that send a sample a second do not send together in a third of a second."""
    settings = ("--set", "rate=1", "--set", "publishers=2", "--set", "test=throughput")
    done = k8sdds("run", str(small), "-o", "out", "--repeat", "1", *settings)
    assert done.returncode == 4
    assert "2 of 2 trials have no valid attempt" in done.stderr
    records = attempts(tmp_path / "out")
    assert set(Counter(record["trial_id"] for record in records).values()) == {3}
    assert all(record["reason"].startswith("uneven: ") for record in records)
    assert (tmp_path / "out" / "report" / "report.html").exists()


def test_concurrent_campaigns_are_independent(k8sdds: Command, small: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with (
        running(tmp_path / "a", str(small), "-o", "out", *ONE_TRIAL) as one,
        running(tmp_path / "b", str(small), "-o", "out", *ONE_TRIAL) as other,
    ):
        for process in (one, other):
            _, stderr = process.communicate(timeout=ENDS_S)
            assert process.returncode in (0, 4), stderr  # together they may be too slow for a rate


def test_the_run_folder_contains_the_qos_profile(k8sdds: Command, small: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.xml"
    mine.write_text((shared("qos") / "strict-reliable.xml").read_text())
    done = k8sdds("run", str(small), "-o", "out", *ONE_TRIAL, "--set", "qos=./mine.xml")
    assert done.returncode == 0, done.stderr
    kept = tmp_path / "out" / "qos" / "mine.xml"
    assert kept.read_text() == mine.read_text()
    (record, *_) = attempts(tmp_path / "out")
    assert record["qos"] == "mine"
    raw = RunFolder.open(tmp_path / "out").raw(record["trial_id"], 1)
    assert json.loads((raw / "pub0" / "meters.json").read_text())["program"].count(str(kept)) == 1
