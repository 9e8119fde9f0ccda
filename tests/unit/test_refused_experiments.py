"""Test that what the lab cannot measure, build or find is refused before anything starts."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.conftest import Command

CALICO = "--set networks=calico-bgp --set baseline=calico-bgp"
ESP = "--set 'networks=[host, {name: flannel-ipsec, engine: kernel}]' --set link.loss_percent=1"


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ("run", 2, "no experiment given"),
        ("run nope", 2, "there is no experiment or application 'nope'"),
        ("run quickstart --set transport=multicast", 2, "flannel-vxlan carries no multicast"),
        ("run quickstart --set users=other", 2, "needs `transport: shared-memory` (and 9 further cells)"),
        ("run quickstart --set middleware=raw", 2, "reliability must be best-effort"),
        ("run quickstart --set middleware=opensplice", 3, "'opensplice' is not built here"),
        ("run quickstart --set qos=ros2-sensor-data", 2, "set it: reliability=best-effort"),
        ("run quickstart --set networks=flannel-vxlna", 2, "did you mean 'flannel-vxlan'"),
        ("run quickstart --set 'networks={name: weavenet, mtu: 1490}'", 2, "at most 1450"),
        ("run quickstart --set baseline=calico", 2, "baseline 'calico' is not among the networks"),
        ("run quickstart --set 'placement={pub0: 0}'", 2, "has no node for sub0"),
        ("run quickstart --set 'placement={pub0: 0, sub0: 0}'", 2, "pub0 and sub0 are on node 0"),
        ("run quickstart --set 'placement={pub0: 0, sub0: 1, sub9: 1}'", 2, "sub9, which the trial does not have"),
        (
            "run quickstart --set placement=same-node --set link.mtu=9000",
            2,
            "placement same-node uses no link between nodes: leave out link and capture",
        ),
        ("run virtualization-overhead --set cpu_quota=0.5", 2, "cpu_quota needs pods"),
        (f"run quickstart {ESP}", 2, "use {name: flannel-ipsec, engine: userspace}"),
        ("run quickstart --set reliability=best-effort --set qos=strict-reliable", 2, "-bestEffort"),
        ("run quickstart --set policies=1", 2, "flannel-vxlan does not enforce NetworkPolicies"),
        (
            f"run quickstart --set policies=1 {CALICO}",
            2,
            "calico-bgp: the lab does not have the rules of this network for policies",
        ),
        ("run quickstart --set discovery=server", 2, "cyclonedds has no discovery server"),
        (
            "run quickstart --set discovery=server --set middleware=fastdds --set security=SignRTPS",
            2,
            "has no credentials",
        ),
        (
            "run quickstart --set discovery=multicast --set networks=kube-router --set baseline=kube-router",
            2,
            "kube-router carries no multicast between nodes, so multicast discovery cannot work",
        ),
        (
            "run quickstart --set discovery=multicast --set middleware=raw --set reliability=best-effort",
            2,
            "discovery: leave it out",
        ),
        ("run quickstart --set discovery=servers", 2, "discovery"),
        ("run quickstart --dry-run -o /proc/nowhere", 2, "cannot write to /proc"),
        ("run quickstart --network wevenet", 2, "did you mean 'weavenet'"),
        ("run nowhere/my.yaml", 2, "cannot read nowhere/my.yaml"),
        ("run --resume nowhere", 2, "nowhere is not a folder"),
        ("run quickstart --resume nowhere", 2, "give no experiment and no changes"),
        ("run quickstart --repeat 0", 2, "--repeat"),
        ("run security-1sub --dry-run --psk-file nowhere", 2, "cannot read"),
        ("lab exec host/pub0 -- true", 2, "there is no lab 'lab'"),
        ("lab down", 2, "there is no lab 'lab'"),
        ("lab down --name x", 2, "there is no lab 'x'"),
        ("lab up quickstart --name ../x", 2, "letters, digits"),
        ("lab up quickstart --network calico", 2, "not in this experiment"),
        ("lab plan nope", 2, "there is no experiment or application 'nope'"),
        ("lab graph quickstart -o x.pdf", 2, "unknown image format"),
        ("lab graph quickstart -o nowhere/x.dot", 2, "cannot write"),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_with_a_remedy(
    k8sdds: Command, tmp_path: Path, command: str, code: int, message: str
) -> None:
    done = k8sdds(*shlex.split(command))
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


def test_an_invalid_key_file_is_rejected(k8sdds: Command, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("a" * 95)
    (tmp_path / "key").chmod(0o600)
    done = k8sdds("run", "security-1sub", "--dry-run", "--psk-file", "key")
    assert done.returncode == 2
    assert "95 characters; at least 96 are required" in done.stderr
