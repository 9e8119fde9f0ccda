"""Test campaigns that need a machine without other work: scripts/test.py runs no other tests next to this file.

- The first attempt of every trial is valid, and twelve subscribers lose no sample.
- Links are on time. On a busy machine, they can be late in all attempts at a trial.
- A campaign notices the work of another program. Other tests would be such work, too.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from k8sdds.results.run_folder import RunFolder
from tests.chaos import chaos
from tests.conftest import NOBODY, Command
from tests.lab.conftest import ONE_TRIAL, TRIALS
from tests.measuring import attempts, last_attempts, measured
from tests.sampling import sampled

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.mark.parametrize(
    "user",
    [pytest.param(None, marks=pytest.mark.long, id="root"), pytest.param(NOBODY, id="ordinary user")],
)
def test_a_campaign_ends_with_a_report(
    k8sdds: Command, small: Path, tmp_path: Path, user: int | None
) -> None:
    done = k8sdds("run", str(small), "-o", "out", "--seed", "7", user=user)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Testbed: lab")
    records = attempts(tmp_path / "out")
    assert len(records) == TRIALS
    assert all(record["valid"] for record in records)
    assert {record["repetition"] for record in records if record["block"] == 1} == {1}
    for record in records:
        test = record["test"]
        assert (record["throughput_mbps"] is not None) == (test == "throughput")
        assert (record["latency_p90_us"] is not None) == (test == "latency")
        assert record["lost"] == 0
        assert record["publisher_cpu_percent"] > 0
        assert record["publisher_rss_bytes"] > 10**6
        assert record["total_cpu_percent"] >= record["node_cpu_percent"] > 0
        assert record["network_cpu_percent"] == 0  # no daemons
        delivered = record["received"] * 1024
        assert record["link_bytes"]["received"]["sub0"] > delivered
        observed = (record["fingerprint"]["outer_protocol"], record["fingerprint"]["added_bytes"])
        assert observed == {"host": ("none", 0), "weavenet": ("VXLAN", 50)}[record["network"]]
        assert record["fingerprint"]["not_observed"] == {}
    for name in ("report/report.html", "report/tables/throughput_overhead.csv", "derived/trials.parquet"):
        assert (tmp_path / "out" / name).stat().st_size > 0
    campaign = RunFolder.open(tmp_path / "out").campaign
    assert campaign["seed"] == 7
    assert campaign["testbed"]["facts"]["privileged"] == (user is None)
    assert campaign["testbed"]["facts"]["boot_id"]
    assert campaign["testbed"]["facts"]["separate_interrupts"] in (True, False)


@pytest.mark.long
def test_twelve_subscribers_lose_no_sample(k8sdds: Command, tmp_path: Path) -> None:
    args = ("multicast-12sub", "--network", "weavenet", "--repeat", "1", "--duration", "0.5", "-o", "out")
    done = k8sdds("run", *args)
    assert done.returncode == 0, done.stderr
    records = last_attempts(tmp_path / "out")
    kinds = Counter((record["network"], record["transport"], record["test"]) for record in records)
    assert kinds == Counter(
        (network, transport, test)
        for network in ("host", "weavenet")
        for transport in ("unicast", "multicast")
        for test in ("throughput", "latency")
    )
    for record in records:
        assert record["valid"], record["reason"]
        assert record["received"] == record["sent"] * 12


@pytest.mark.parametrize(
    "settings",
    sampled(
        [(["link.rate_mbit=100", "layout=same"],), (["link.loss_percent=1", "test=throughput"],)], every_run=1
    ),
    ids=lambda settings: settings[0],
)
def test_every_setting_of_links_is_measured(
    k8sdds: Command, small: Path, tmp_path: Path, settings: list[str]
) -> None:
    args = [word for setting in settings for word in ("--set", setting)]
    assert measured(k8sdds, tmp_path, small.read_text(), "--repeat", "1", "--duration", "0.5", *args)


def test_work_of_another_program_in_the_kernel_disturbs(k8sdds: Command, small: Path, tmp_path: Path) -> None:
    busy = subprocess.Popen(["dd", "if=/dev/zero", "of=/dev/null", "bs=64k"], stderr=subprocess.DEVNULL)
    try:
        done = k8sdds("run", str(small), "-o", "out", *ONE_TRIAL)
    finally:
        busy.kill()
        busy.wait()
    assert done.returncode == 0, done.stderr
    (record,) = attempts(tmp_path / "out")
    assert any(warning.startswith("disturbed: other processes used") for warning in record["warnings"])


@pytest.mark.parametrize("what", sampled([("link",), ("pod",)], every_run=1))
def test_killed_outages_leave_nothing_behind(what: str, tmp_path: Path) -> None:
    outage = f"{{name: outage, after_s: 0.5, for_s: 0.2, what: {what}}}"
    campaign = chaos(tmp_path, f"networks: host, test: {outage}, rate: 100", 3, 2.7, seed=1)
    campaign.run(kills=3, command_too=True, timeout_s=900)
    campaign.clean()
    campaign.require_one_valid_attempt_per_trial()
    # A busy machine can be too late to forward packets.
    assert campaign.reasons() <= {"part-failed", "link"}
