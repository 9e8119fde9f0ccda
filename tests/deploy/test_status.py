"""The command `status` on real SSH servers."""

from __future__ import annotations

import json

from tests.conftest import Command
from tests.deploy.conftest import Farm


def test_status_checks_all_machines(farm: Farm, k8sdds: Command) -> None:
    farm.add("alpha", "beta", known=False)
    profile = farm.profile()
    ended = k8sdds("status", profile)
    assert ended.returncode == 3 and ended.stderr.count("host key is not known") == 2, ended.stderr

    ended = k8sdds("status", profile, "--json", "--accept-new-host-keys")
    data = json.loads(ended.stdout)
    assert sorted(data["machines"]) == ["alpha", "beta"] and data["unreached"] == {}
    # Both machines are this one, which systemd may or may not have booted.
    problems = [p["what"].partition(":")[0] for p in data["problems"] if "systemd" in p["what"]]
    booted = data["machines"]["alpha"]["one"]["init"] == "systemd"
    assert problems == ([] if booted else ["all 2 nodes"])
    assert ended.returncode == (3 if data["problems"] else 0)


def test_status_reports_problems(farm: Farm, k8sdds: Command) -> None:
    farm.add("alpha", "beta")
    farm.servers["beta"].stop()
    profile = farm.profile("network: {name: flannel-vxlan, interface: eth99}\n")
    ended = k8sdds("status", profile)
    assert ended.returncode == 3
    assert (
        "alpha: does not have the interface eth99" in ended.stderr
        and "beta: cannot be reached" in ended.stderr
    )
    assert "Traceback" not in ended.stderr and "alpha" in ended.stdout


def test_status_of_some_machines(farm: Farm, k8sdds: Command) -> None:
    farm.add("alpha", "beta")
    profile = farm.profile()
    ended = k8sdds("status", profile, "--json", "--limit", "beta")
    assert sorted(json.loads(ended.stdout)["machines"]) == ["beta"]
    ended = k8sdds("status", profile, "--limit", "gamma")
    assert ended.returncode == 2 and "alpha, beta" in ended.stderr


def test_unknown_profile_is_reported_with_similar_names(k8sdds: Command) -> None:
    ended = k8sdds("status", "edge-lap")
    assert ended.returncode == 2 and "edge-lab" in ended.stderr
