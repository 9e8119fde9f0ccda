"""A deploy without internet: with a bundle, only the nodes are contacted, and they contact only each other."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from k8sdds import nodes
from k8sdds.bundle.contents import HOST_ARCH
from k8sdds.deploy import deploy as flow
from k8sdds.deploy import profiles
from tests import image_archives
from tests.commands import K8SDDS

pytestmark = [pytest.mark.long, pytest.mark.skipif(os.geteuid() != 0, reason="local nodes need root")]
PROFILE = """name: offline
provider: local
software: {{source: bundle, bundle: {bundle}}}
nodes:
  - {{name: alone, roles: [control-plane, worker]}}
networks: [flannel-hostgw, kube-router, weavenet]
"""
INSTALLED = ("containerd", "runc", "conntrack", "socat", "ethtool", "ebtables", "ipset")
"""Packages that a fresh machine of the distribution does not have."""
WATCH = (Path(__file__).parent / "scripts/watch.nft").read_text()


def run_offline(state: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a network namespace that has only a loopback interface."""
    return subprocess.run(
        ["unshare", "--net", "sh", "-ec", 'ip link set lo up; exec "$@"', "sh", *args],
        capture_output=True, text=True, timeout=900, stdin=subprocess.DEVNULL,
        env={**os.environ, "K8SDDS_STATE_DIR": str(state)},
    )  # fmt: skip


@pytest.fixture(autouse=True)
def ended(state: Path, tmp_path: Path) -> Iterator[None]:
    yield
    nodes.down("offline")
    shutil.rmtree(tmp_path / "bundle", ignore_errors=True)


def create_bundle(folder: Path, profile: Path) -> None:
    """Create the bundle of a profile with the command, and verify it."""
    options = image_archives.options("kube-router", "weavenet")
    create = (K8SDDS, "bundle", "create", folder, "--profile", profile, "--arch", HOST_ARCH, *options)
    done = subprocess.run(create, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    named = ("flannel-vxlan", "flannel-hostgw", "kube-router", "weavenet")
    lines = [line for line in done.stdout.splitlines() if " network " in line]
    assert [line.split()[-1] for line in lines] == list(named), lines  # and nothing is missing
    verify = (K8SDDS, "bundle", "verify", folder, "--profile", profile)
    done = subprocess.run(verify, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and f"networks {', '.join(named)} are intact" in done.stdout, done.stderr


def test_deploy_and_switches_with_a_bundle_contact_only_their_nodes(state: Path, tmp_path: Path) -> None:
    profile = tmp_path / "offline.yaml"
    profile.write_text(PROFILE.format(bundle=tmp_path / "bundle"))
    create_bundle(tmp_path / "bundle", profile)
    flow.create_machines(profiles.load(str(profile)), lambda _: None)
    nodes.run("offline", "alone", ["dpkg", "--purge", "--force-depends", *INSTALLED])
    nodes.run("offline", "alone", ["nft", "-f", "-"], stdin=WATCH)
    for args in (["getent", "hosts", "example.com"], ["ping", "-c", "1", "192.0.2.1"]):
        assert run_offline(state, *args).returncode != 0

    done = run_offline(state, str(K8SDDS), "deploy", str(profile), "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "alone: runtime: install containerd" in done.stdout
    assert "alone: smoke test: run a pod" in done.stdout
    again = run_offline(state, str(K8SDDS), "deploy", str(profile), "--yes")
    assert again.stdout == "no changes\n", again.stdout + again.stderr
    for network in ("flannel-hostgw", "kube-router", "flannel-vxlan"):
        done = run_offline(state, str(K8SDDS), "network", "switch", str(profile), network, "--yes")
        assert done.returncode == 0 and f"offline now has {network}" in done.stdout, done.stderr
    # The bundle has everything for WeaveNet; it is the kernel that may not.
    done = run_offline(state, str(K8SDDS), "network", "switch", str(profile), "weavenet", "--dry-run")
    assert "image" not in done.stderr, done.stderr

    rules = json.loads(nodes.run("offline", "alone", ["nft", "-j", "list", "table", "inet", "watch"]))
    result = [item["rule"] for item in rules["nftables"] if "rule" in item and "comment" in item["rule"]]
    counted = {
        rule["comment"]: next(part["counter"]["packets"] for part in rule["expr"] if "counter" in part)
        for rule in result
    }
    # Programs query the name server, but need no answer, so these packets are allowed.
    assert (counted["elsewhere"], counted["elsewhere6"]) == (0, 0), counted
    # The counters count packets.
    nodes.run("offline", "alone", ["sh", "-c", "ping -c 1 -W 1 192.0.2.1; getent hosts example.com; :"])
    rules = nodes.run("offline", "alone", ["nft", "list", "table", "inet", "watch"])
    for counter in ("names", "elsewhere"):
        assert f'packets 0 bytes 0 comment "{counter}"' not in rules
    done = run_offline(state, str(K8SDDS), "destroy", str(profile), "--yes")
    assert done.returncode == 0, done.stderr
