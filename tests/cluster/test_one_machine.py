"""A cluster of three local nodes, deployed with the command as a user does."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from k8sdds.deploy import local_nodes
from k8sdds.nodes import records
from k8sdds.nodes.machine import INOTIFY_INSTANCES
from tests.cluster import lab_objects
from tests.cluster.switched import inside_of
from tests.clusters import Deployed


def test_three_nodes_are_ready_and_pass_the_smoke_test(one_machine: Deployed) -> None:
    ready = one_machine.kubectl(
        "get", "nodes", "-o", 'jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}'
    )
    assert ready == "True True True"
    assert "control: smoke test: exchange datagrams between 3 nodes" in one_machine.output
    # The pods of the smoke test are deleted, and its proof is recorded.
    assert one_machine.kubectl("get", "pods", "-n", "k8sdds-system", "-o", "name") == ""
    namespace = json.loads(one_machine.kubectl("get", "namespace", "k8sdds-system", "-o", "json"))
    assert namespace["metadata"]["annotations"]["k8sdds.io/proven"]


def test_the_lab_has_the_objects_of_flannel(one_machine: Deployed) -> None:
    assert lab_objects.undeclared("flannel-vxlan", one_machine, inside_of(one_machine)) == []


def test_second_deploy_changes_nothing(one_machine: Deployed) -> None:
    done = one_machine.k8sdds("deploy", "one-machine", "--yes")
    assert (done.returncode, done.stdout) == (0, "no changes\n"), done.stderr
    plan = json.loads(one_machine.k8sdds("deploy", "one-machine", "--dry-run", "--json").stdout)
    assert plan["actions"] == []


@pytest.mark.long
def test_deploy_restores_what_is_missing(one_machine: Deployed) -> None:
    one_machine.kubectl("delete", "daemonset", "flannel", "-n", "k8sdds-network")
    one_machine.kubectl("delete", "clusterrolebinding", "k8sdds:metrics-server")
    # A file is missing, and the content of a program differs although its times have not changed.
    change = "rm /etc/sysctl.d/90-k8sdds.conf; f=/opt/cni/bin/portmap; t=$(stat -c @%Y $f); echo >>$f; touch -d $t $f"
    exec_ = ("nodes", "exec", "one-machine/worker1", "--")
    assert one_machine.k8sdds(*exec_, "sh", "-ec", change).returncode == 0
    plan = json.loads(one_machine.k8sdds("deploy", "one-machine", "--dry-run", "--json").stdout)
    planned = {(action["node"], action["phase"]) for action in plan["actions"]}
    lost = {("worker1", "runtime"), ("worker1", "kubernetes packages"), ("control", "network")}
    assert lost | {("control", "metrics server")} <= planned
    assert not any(node == "worker2" for node, _ in planned)
    assert one_machine.k8sdds("deploy", "one-machine", "--yes").returncode == 0
    assert one_machine.k8sdds("deploy", "one-machine", "--yes").stdout == "no changes\n"


def test_api_server_is_reachable_from_this_machine(one_machine: Deployed) -> None:
    assert stat.S_IMODE(one_machine.kubeconfig.stat().st_mode) == 0o600
    shown = one_machine.k8sdds("kubeconfig", "one-machine")
    assert shown.stdout == one_machine.kubeconfig.read_text()
    (server,) = [line.split(": ")[1] for line in shown.stdout.splitlines() if "server:" in line]
    answer = subprocess.run(
        ["openssl", "s_client", "-connect", server.removeprefix("https://"), "-brief"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert "CN = kube-apiserver" in answer.stderr + answer.stdout


def test_status_and_logs_contain_no_secrets(one_machine: Deployed, tmp_path: Path) -> None:
    status = one_machine.k8sdds("status", "one-machine")
    assert status.returncode == 0 and status.stdout.count("ready") == 3
    archive = tmp_path / "logs.tar.gz"
    done = one_machine.k8sdds("logs", "one-machine", "--output", str(archive))
    assert done.returncode == 0, done.stderr
    subprocess.run(["tar", "-xzf", archive, "-C", tmp_path], check=True)
    folder = tmp_path / "logs"
    assert sorted(path.name for path in folder.iterdir()) == ["control", "deploy", "worker1", "worker2"]
    assert "worker2" in (folder / "control" / "nodes.txt").read_text()
    kubeconfig = one_machine.kubeconfig.read_text()
    (key,) = [line.split()[1] for line in kubeconfig.splitlines() if "client-key-data" in line]
    texts = [path.read_text() for path in folder.rglob("*.*")]
    texts += [path.read_text() for path in (one_machine.state / "clusters").rglob("*.log")]
    tokens = one_machine.kubectl("get", "secrets", "-n", "kube-system", "-o", "name").split()
    ids = [name.rpartition("-")[2] for name in tokens if "bootstrap-token" in name]
    assert ids and len(texts) > 20
    for text in texts:
        assert key not in text and not any(f"{item}." in text for item in ids)


def test_twelve_nodes_fit_into_the_usual_128_inotify_instances(
    one_machine: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("K8SDDS_STATE_DIR", str(one_machine.state))
    known = records.read(one_machine.name)
    assert known is not None
    used: dict[str, Counter[str]] = {node: Counter() for node in one_machine.nodes}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            _, _, inside = (process / "cgroup").read_text().partition(f"/k8sdds-{Path(known.data).name}/")
            node = inside.partition("/")[0]
            # Inotify instances are counted by user: those of pods that run as another user are not root's.
            if node in used and process.stat().st_uid == 0:
                open_ = [os.readlink(entry) for entry in (process / "fd").iterdir()]
                used[node][(process / "comm").read_text().strip()] += open_.count("anon_inode:inotify")
    assert all(node["kubelet"] and node["systemd"] for node in used.values()), used
    control_plane, *workers = (node.total() for node in used.values())
    expected = {role: INOTIFY_INSTANCES + needed for role, needed in local_nodes.INOTIFY_INSTANCES.items()}
    assert control_plane <= expected[True] and max(workers) <= expected[False], used
    assert expected[True] + 11 * expected[False] <= 128


def test_commands_without_a_terminal_require_yes(one_machine: Deployed) -> None:
    planned = one_machine.k8sdds("destroy", "one-machine", "--dry-run").stdout.splitlines()
    assert planned == [f"would delete {node} and all its data" for node in one_machine.nodes]
    done = one_machine.k8sdds("destroy", "one-machine")
    assert done.returncode == 2 and "--yes" in done.stderr
    done = one_machine.k8sdds("deploy", "one-machine", "--limit", "nobody")
    assert done.returncode == 2 and "control, worker1, worker2" in done.stderr
