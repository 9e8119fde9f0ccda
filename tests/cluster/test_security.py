"""Test all DDS Security levels on a real cluster, on a network that the campaign installs; keys are not exposed."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from k8sdds import versions
from k8sdds.kubernetes import exec_stream, leases
from k8sdds.kubernetes.client import CORE, KubernetesClient
from k8sdds.security import KEY, levels
from k8sdds.testbeds.cluster import namespace, pods
from tests.clusters import Deployed
from tests.commands import K8SDDS
from tests.measuring import ENDS_S, experiment

NETWORK = "flannel-hostgw"
SWEEP = """\
  - networks: [{network}]
    test: [latency, throughput]
    payload_bytes: 1024
    security: [{levels}]
"""
INSPECT = f"ls -ln /run/k8sdds/*/{KEY}; grep ' /run/k8sdds ' /proc/mounts; cat /run/k8sdds/*/{KEY}"


def measure(cluster: Deployed, folder: Path, names: Sequence[str]) -> list[dict[str, Any]]:
    """Measure these levels on a deployed cluster, check the keys, and return the attempts of the run folder."""
    path, run = folder / "secured.yaml", folder / "secured"
    sweep = SWEEP.format(network=NETWORK, levels=", ".join(names))
    path.write_text(experiment(sweep, baseline=NETWORK))
    admin = KubernetesClient.from_kubeconfig(cluster.kubeconfig, None)
    argv = [str(K8SDDS), "run", str(path), "--testbed", cluster.name, "-o", str(run)]
    secrets: set[bytes] = set()
    with subprocess.Popen(
        argv, cwd=folder, env={**os.environ, "K8SDDS_STATE_DIR": str(cluster.state)}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as campaign:  # fmt: skip
        try:
            while campaign.poll() is None and len(secrets) < 2:
                time.sleep(0.2)
                secrets |= keys(admin)
            open_to_all = exposed(secrets)
            api_objects = json.dumps(admin.get(f"{CORE}/pods")) + json.dumps(admin.get(f"{CORE}/secrets"))
        finally:
            output = campaign.communicate(timeout=ENDS_S)[0]
    assert campaign.returncode == 0, output.decode()
    assert len(secrets) == 2, "each participant has a key of its own"
    assert open_to_all == []
    for secret in secrets:
        line = secret.splitlines()[1]
        assert line not in output and line.decode() not in api_objects
        assert [path for path in run.rglob("*") if path.is_file() and line in path.read_bytes()] == []
    for item in admin.get(f"{CORE}/namespaces", labelSelector=leases.SELECTOR)["items"]:
        assert "deletionTimestamp" in item["metadata"]
        namespace.wait_deleted(admin, item["metadata"]["name"], ENDS_S)
    return [json.loads(line) for line in (run / "trials.jsonl").read_text().splitlines()]


def keys(admin: KubernetesClient) -> set[bytes]:
    """Return the private keys in the participants' pods; check that they are in memory and private."""
    listed = admin.get(f"{CORE}/pods", labelSelector=f"{leases.SELECTOR},{versions.ROLE_LABEL} in (pub,sub)")[
        "items"
    ]
    private_keys = set()
    for item in filter(pods.is_ready, listed):
        meta = item["metadata"]
        try:
            done = exec_stream.run_command(admin, meta["namespace"], meta["name"], ["sh", "-c", INSPECT])
        except Exception:  # the pod is being deleted, or the file is being written
            continue
        listing, _, rest = done.stdout.partition(b"tmpfs ")
        if done.code == 0 and rest.rstrip().endswith(b"PRIVATE KEY-----"):
            assert listing.split()[0] == b"-rw-------", listing
            assert listing.split()[2] == str(versions.UNPRIVILEGED_USER).encode()
            private_keys.add(rest[rest.index(b"-----BEGIN") :])
    return private_keys


def exposed(secrets: set[bytes]) -> list[str]:
    """Return processes on this machine whose command line or environment contains a key."""
    processes = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            visible = (path / "cmdline").read_bytes() + (path / "environ").read_bytes()
        except OSError:
            continue
        if any(secret.splitlines()[1] in visible for secret in secrets):
            processes.append(path.name)
    return processes


@pytest.mark.long
@pytest.mark.usefixtures("nothing_left")
def test_every_level_is_measured_on_a_network_that_the_campaign_installs(
    one_machine: Deployed, tmp_path: Path
) -> None:
    names = levels.names()
    attempts = measure(one_machine, tmp_path, names)
    valid = [row for row in attempts if row["valid"]]
    assert {(row["security"], row["test"]) for row in valid} == {
        (name, test) for name in names for test in ("latency", "throughput")
    }
    for row in valid:
        assert row["network"] == NETWORK
        assert row["network_proof"].startswith("routed by eth0, no tunnel")
        assert row["link_bytes"]["carried"]["sub0"] >= row["received"] * row["payload_bytes"]
    # The original network is installed again.
    done = one_machine.k8sdds("deploy", one_machine.name, "--dry-run")
    assert "no changes" in done.stdout, done.stdout
