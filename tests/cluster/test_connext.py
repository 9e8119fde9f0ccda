"""Test campaigns with RTI PerfTest on a real cluster, with stand-ins for RTI's programs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from k8sdds import nodes, versions
from k8sdds.kubernetes.client import KubernetesClient
from k8sdds.middleware.connext import settings
from k8sdds.testbeds.cluster import permissions
from tests.cluster.conftest import Command, User
from tests.clusters import Deployed
from tests.lab.connext import image

EXPERIMENT = """name: connext
baseline: flannel-vxlan
repetitions: 1
duration_s: 2
sweeps:
  - networks: [flannel-vxlan]
    middleware: connext
    test: {name: throughput, loaded_latency: true}
    reliability: best-effort
    subscribers: 2
    discovery: [peers, server]
"""
CONTENT = "# a license that stands for the user's\n"


@pytest.fixture
def loaded(
    one_machine: Deployed, admin: KubernetesClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-ins' images are on all nodes."""
    monkeypatch.setenv("K8SDDS_STATE_DIR", str(one_machine.state))
    archive = image.archive(tmp_path)
    waiting = set(one_machine.nodes)
    for node in one_machine.nodes:
        argv = [*nodes.exec_argv(one_machine.name, node), "ctr", "-n", "k8s.io", "images", "import", "-"]
        with archive.open("rb") as content:
            subprocess.run(argv, stdin=content, check=True, capture_output=True, timeout=120)
    # A kubelet reports images with its next node status.
    version = "0"
    while waiting:
        for event in admin.watch(permissions.NODES, for_s=60, resourceVersion=version):
            names = [name for item in event["object"]["status"].get("images", []) for name in item["names"]]
            if image.PERFTEST in names:
                waiting.discard(event["object"]["metadata"]["name"])
            if not waiting:
                break


@pytest.mark.long
@pytest.mark.usefixtures("nothing_left", "loaded")
def test_connext_by_peers_and_by_its_discovery_service(
    k8sdds: Command, user: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "connext.yaml").write_text(EXPERIMENT)
    (tmp_path / "rti_license.dat").write_text(CONTENT)
    monkeypatch.setenv(settings.IMAGE, image.PERFTEST)
    monkeypatch.setenv(settings.VERSION, "4.1")
    monkeypatch.setenv(versions.CONNEXT_DISCOVERY_IMAGE_VARIABLE, image.DISCOVERY)
    monkeypatch.delenv(settings.LICENSE, raising=False)
    refused = k8sdds("run", "./connext.yaml", *user.options, "--dry-run")
    assert refused.returncode == 2 and settings.LICENSE in refused.stderr
    monkeypatch.setenv(settings.LICENSE, str(tmp_path / "rti_license.dat"))
    done = k8sdds("run", "./connext.yaml", *user.options, "-o", "run")
    assert done.returncode == 0, done.stderr + done.stdout
    run = tmp_path / "run"
    attempts: list[dict[str, Any]] = [
        json.loads(line) for line in (run / "trials.jsonl").read_text().splitlines()
    ]
    # `auto` selects peers.
    assert {row["discovery"] for row in attempts if row["valid"]} == {"auto", "server"}
    for row in attempts:
        assert row["middleware_version"] == "stand-in of 7.2.0" and row["sent"] is None
        assert row["received"] > 0 and row["loaded_latency_p50_us"] == 55
        raw = run / "raw" / row["trial_id"] / str(row["attempt"])
        for name in ("pub0", "sub0", "sub1"):
            environment = json.loads((raw / name / "meters.json").read_text())["environment"]
            assert environment[settings.LICENSE] == settings.LICENSE_IN_POD
            assert ("NDDS_DISCOVERY_PEERS" in environment) == (row["discovery"] == "server")
    assert "a stand-in ran in place of RTI PerfTest" in (run / "report" / "report.html").read_text()
    # The license is nowhere but on the cluster.
    for path in run.rglob("*"):
        assert not path.is_file() or CONTENT.encode() not in path.read_bytes()
