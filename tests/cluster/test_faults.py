"""Test faults during a trial: the campaign must complete all trials and leave nothing behind."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from k8sdds import nodes, versions
from k8sdds.kubernetes import leases
from k8sdds.kubernetes.client import CORE, KubernetesClient
from tests.cluster.conftest import Command, User, running, wait
from tests.clusters import Deployed
from tests.measuring import experiment
from tests.sampling import sampled

SWEEP = "  - {networks: flannel-vxlan, test: latency}\n"
EXPERIMENT = experiment(SWEEP, name="faults", baseline="flannel-vxlan", repetitions=4, duration_s=2)
DURATION_S = 600
CUT_S = 8
AWAY_S = 20


class Victims:
    """Finds the campaign's participants and injects faults."""

    def __init__(self, admin: KubernetesClient, cluster: Deployed) -> None:
        """The state folder of the test's process must be the cluster's."""
        self.admin = admin
        self.cluster = cluster

    def _pod(self, participant: str) -> dict[str, Any]:
        label = f"{versions.PARTICIPANT_LABEL}={participant}"
        listed = self.admin.get(f"{CORE}/pods", labelSelector=f"{leases.SELECTOR},{label}")["items"]
        return next(pod for pod in listed if "deletionTimestamp" not in pod["metadata"])

    def _on(self, node: str, *argv: str) -> None:
        nodes.run(self.cluster.name, node, argv, timeout_s=120)

    def pod_killed(self) -> None:
        meta = self._pod("sub0")["metadata"]
        self.admin.delete(f"{CORE}/namespaces/{meta['namespace']}/pods/{meta['name']}", grace_s=0)

    def pod_killed_and_not_replaced(self) -> None:
        """Prevent the scheduler from placing a replacement for a while."""
        node = self._pod("sub0")["spec"]["nodeName"]
        self.cluster.kubectl("cordon", node)
        self.pod_killed()
        time.sleep(AWAY_S)
        self.cluster.kubectl("uncordon", node)

    def containerd_restarted(self) -> None:
        self._on(self._pod("sub0")["spec"]["nodeName"], "systemctl", "restart", "containerd")

    def kubelet_restarted(self) -> None:
        self._on(self._pod("sub0")["spec"]["nodeName"], "systemctl", "restart", "kubelet")

    def link_cut(self) -> None:
        node = self._pod("sub0")["spec"]["nodeName"]
        nodes.set_link(self.cluster.name, node, "down")
        time.sleep(CUT_S)
        nodes.set_link(self.cluster.name, node, "up")

    def api_server_restarted(self) -> None:
        self._on(self.cluster.nodes[0], "sh", "-c", _killing("kube-apiserver ", "TERM"))

    def supervisor_killed(self) -> None:
        node = self._pod("sub0")["spec"]["nodeName"]
        self._on(node, "sh", "-c", _killing("supervisor attend", "KILL"))


def _killing(text: str, signal_name: str) -> str:
    """Return a script that signals the processes of a node whose command line contains a text."""
    each = "for p in /proc/[0-9]*; do case \"$(tr '\\0' ' ' <$p/cmdline)\" in"
    return f"{each} sh\\ -c*) ;; *{text.replace(' ', chr(92) + ' ')}*) kill -{signal_name} ${{p#/proc/}};; esac; done"


FAULTS: list[tuple[str, tuple[str, ...]]] = [
    ("pod_killed", ("part-failed", "peer-lost", "no-match", "not-started")),
    # Nothing is lost: participants continue, and new streams fetch their files.
    ("containerd_restarted", ()),
    ("kubelet_restarted", ()),
    ("pod_killed_and_not_replaced", ("part-failed", "peer-lost", "no-match", "not-started")),
    (
        "link_cut",
        ("part-failed", "peer-lost", "no-match", "deadline", "no-samples", "not-started", "lost-samples"),
    ),
    ("api_server_restarted", ()),
    ("supervisor_killed", ("part-failed", "peer-lost", "no-match", "crashed")),
]


def rows(folder: Path) -> list[dict[str, Any]]:
    try:
        text = (folder / "trials.jsonl").read_text()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def after_first_trial(folder: Path) -> bool:
    """Return whether a trial after the first one has files and no result; its participants start within 2 s."""
    started = {path.name for path in folder.glob("raw/*")}
    return len(started) > 1 and not started <= {row["trial_id"] for row in rows(folder)}


@pytest.mark.parametrize(("fault", "reasons"), sampled(FAULTS, 1))
@pytest.mark.usefixtures("nothing_left")
def test_a_fault_costs_one_attempt_at_most(
    fault: str,
    reasons: tuple[str, ...],
    user: User,
    admin: KubernetesClient,
    one_machine: Deployed,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("K8SDDS_STATE_DIR", str(one_machine.state))
    (tmp_path / "faults.yaml").write_text(EXPERIMENT)
    folder = tmp_path / "run"
    with running(tmp_path, "./faults.yaml", *user.options, "-o", "run") as process:
        wait(lambda: after_first_trial(folder), process, "a trial after the first one")
        time.sleep(1.5)
        getattr(Victims(admin, one_machine), fault)()
        out, error = process.communicate(timeout=DURATION_S)
    attempts = rows(folder)
    invalid = [row["reason"] for row in attempts if not row["valid"]]
    assert process.returncode == 0, (out, error, invalid)
    assert len({row["trial_id"] for row in attempts if row["valid"]}) == 4
    assert {str(reason).split(":")[0] for reason in invalid} <= set(reasons), invalid
    assert len(invalid) <= 2


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.long
def test_a_killed_campaign_can_be_resumed(
    user: User, admin: KubernetesClient, k8sdds: Command, tmp_path: Path
) -> None:
    (tmp_path / "faults.yaml").write_text(EXPERIMENT)
    folder = tmp_path / "run"
    with running(tmp_path, "./faults.yaml", *user.options, "-o", "run") as process:
        wait(lambda: after_first_trial(folder), process, "a trial after the first one")
        process.kill()
        process.communicate()
    kept = rows(folder)
    assert admin.get(f"{CORE}/namespaces", labelSelector=leases.SELECTOR)["items"]
    done = k8sdds("run", "--resume", "run")
    assert done.returncode == 0, done.stderr
    attempts = rows(folder)
    assert attempts[: len(kept)] == kept
    assert len({row["trial_id"] for row in attempts if row["valid"]}) == 4


@pytest.mark.usefixtures("nothing_left")
def test_clean_deletes_leftovers_and_keeps_what_is_in_use(
    user: User, admin: KubernetesClient, one_machine: Deployed, k8sdds: Command, tmp_path: Path
) -> None:
    """The Lease that a killed campaign leaves does not block a change of the cluster."""
    # Longer than any request of this test takes: it is killed.
    text = experiment(SWEEP, name="faults", baseline="flannel-vxlan", repetitions=100, duration_s=2)
    (tmp_path / "faults.yaml").write_text(text)

    def namespaces() -> list[dict[str, Any]]:
        listed = admin.get(f"{CORE}/namespaces", labelSelector=leases.SELECTOR)["items"]
        return [item for item in listed if "deletionTimestamp" not in item["metadata"]]

    def held_leases() -> list[dict[str, Any]]:
        return list(admin.get(f"{leases.LEASES}/leases", labelSelector=leases.SELECTOR)["items"])

    with running(tmp_path, "./faults.yaml", *user.options, "-o", "run") as process:
        wait(held_leases, process, "the Lease")
        assert "in use" in k8sdds("clean", *user.options).stdout
        process.kill()
        process.communicate()
    assert held_leases()
    done = one_machine.k8sdds("network", "switch", one_machine.name, "flannel-vxlan", "--yes")
    assert done.returncode == 0, done.stderr
    assert "removed" in k8sdds("clean", *user.options).stdout
    assert not namespaces()
