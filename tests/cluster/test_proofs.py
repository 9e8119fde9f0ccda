"""Test that paths are verified before measuring, and that deviations are detected."""

from __future__ import annotations

from pathlib import Path

import pytest

from k8sdds.kubernetes.client import CORE, KubernetesClient
from tests.cluster.conftest import Command, User
from tests.clusters import Deployed
from tests.measuring import experiment, valid_attempts
from tests.users import account, apply, rights

pytestmark = pytest.mark.usefixtures("nothing_left")


SWEEP = """\
  - networks: [flannel-vxlan]
    test: latency
"""


def test_another_installed_network_is_detected(k8sdds: Command, user: User, tmp_path: Path) -> None:
    """Flannel uses VXLAN, but the user names host-gw."""
    args = ("--pod-network", "flannel-hostgw", "--set", "networks=[host, flannel-hostgw]", "--repeat", "1")
    done = k8sdds("run", "quickstart", *user.options, *args, "-o", "run")
    assert done.returncode == 3, done.stdout + done.stderr
    message = " ".join(done.stderr.split())
    assert (
        "the installed network is not Flannel, host-gw backend" in message
        and "by flannel.1, a tunnel (vxlan)" in message
    )
    assert "--pod-network" in message
    assert not (tmp_path / "run").exists()


def test_an_unproven_path_is_reported(
    k8sdds: Command, admin: KubernetesClient, one_machine: Deployed, tmp_path: Path
) -> None:
    """The prepared namespace does not allow pods on the nodes' own network."""
    kubeconfig, subject = account(admin, one_machine.kubeconfig, "k8sdds-guest", tmp_path)
    objects = rights("namespace", subject)
    for obj in objects:
        obj["metadata"]["name" if obj["kind"] == "Namespace" else "namespace"] = "k8sdds-strict"
    objects[0]["metadata"]["labels"] = {"pod-security.kubernetes.io/enforce": "restricted"}
    apply(admin, objects)
    (tmp_path / "alone.yaml").write_text(experiment(SWEEP, baseline="flannel-vxlan", duration_s=0.5))
    options = ("--testbed", "cluster", "--kubeconfig", str(kubeconfig), "--namespace", "k8sdds-strict")
    done = k8sdds("run", "./alone.yaml", *options, "--pod-network", "flannel-vxlan", "-o", "run")
    admin.delete(f"{CORE}/namespaces/k8sdds-strict")
    assert done.returncode == 0, done.stderr
    (row,) = valid_attempts(tmp_path / "run")
    assert row["network_proof"].startswith("whole packets of 1450 bytes pass; not proven: which links")
    assert "hostNetwork=true" in row["network_proof"]
    assert any(warning.startswith("unproven: which links") for warning in row["warnings"])
    assert "carried" not in row["link_bytes"]
    # What the pods see themselves is observed; what leaves their node is not.
    observed = row["fingerprint"]
    assert (observed["path_mtu_bytes"], observed["outer_protocol"], observed["rules"]) == (1450, None, None)
    assert "hostNetwork=true" in observed["not_observed"]["outer_protocol"]
