"""Run the lab commands plan, up, ls, exec, graph, down, clean and doctor, as root and as an ordinary user."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from k8sdds.system import cgroups
from tests.commands import K8SDDS, environment
from tests.conftest import NOBODY, Command


@pytest.fixture(autouse=True)
def remove_labs(k8sdds: Command, tmp_path: Path, nothing_left: None) -> Iterator[None]:
    """Remove the labs of a test that failed before the check for leftovers."""
    yield
    for user in (None, NOBODY):
        if list(tmp_path.glob(f"state-{user}/labs/*.json")):
            k8sdds("clean", "--all", user=user)


USERS = pytest.mark.parametrize(
    "user",
    [pytest.param(None, marks=pytest.mark.long, id="root"), pytest.param(NOBODY, id="ordinary user")],
)


@USERS
def test_a_lab_can_be_created_entered_and_removed(k8sdds: Command, user: int | None) -> None:
    planned = k8sdds("lab", "up", "multicast-4sub", "--network", "weavenet", "--dry-run", user=user)
    assert planned.stdout == "would build weavenet: 5 nodes, pods pub0 sub0 sub1 sub2 sub3\n", planned.stderr
    assert "No lab is up" in k8sdds("lab", "ls", user=user).stdout

    created = k8sdds("lab", "up", "multicast-4sub", "--network", "weavenet", user=user)
    assert created.returncode == 0, created.stderr
    assert "weavenet: 5 nodes, pods pub0 sub0 sub1 sub2 sub3" in created.stdout

    (row,) = json.loads(k8sdds("lab", "ls", "--json", user=user).stdout)
    assert (row["lab"], row["network"], row["in_use"]) == ("lab", "weavenet", True)

    inside = k8sdds(
        "lab", "exec", "weavenet/sub1", "--", "sh", "-c", "hostname; ip -br addr show eth0; exit 7", user=user
    )
    assert inside.returncode == 7
    assert inside.stdout.startswith("sub1\n")
    assert "10.32.2.2/12" in inside.stdout
    assert "node3" not in k8sdds("lab", "exec", "weavenet/node0", "--", "ip", "-br", "link", user=user).stdout

    again = k8sdds("lab", "up", "multicast-4sub", "--network", "weavenet", user=user)
    assert again.returncode == 2
    assert "is already up" in again.stderr

    assert "kept lab: it is in use" in k8sdds("clean", user=user).stdout
    assert k8sdds("lab", "down", "--dry-run", user=user).stdout == "would remove lab: weavenet\n"
    assert k8sdds("lab", "down", user=user).stdout == "lab: removed\n"
    assert "No lab is up" in k8sdds("lab", "ls", user=user).stdout


def test_clean_all_removes_a_running_lab(k8sdds: Command) -> None:
    assert k8sdds("lab", "up", "quickstart", "--network", "kube-router", "--name", "mine").returncode == 0
    assert "would remove mine" in k8sdds("clean", "--all", "--dry-run").stdout
    assert "removed mine" in k8sdds("clean", "--all").stdout


def test_the_printed_plan_builds_the_network(k8sdds: Command, tmp_path: Path) -> None:
    plan = k8sdds("lab", "plan", "quickstart", "--network", "flannel-vxlan").stdout
    script = tmp_path / "plan.sh"
    script.write_text(
        plan + "ip netns exec pub0 ping -q -c 1 -W 5 -M do -s 1422 10.244.1.2 && echo it works\n"
    )
    args = ["unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "sh", "-c"]
    done = subprocess.run(
        [*args, f"mount -t tmpfs t /run && sh -e {script}"], capture_output=True, text=True, timeout=60
    )
    assert "it works" in done.stdout, done.stderr


def test_the_graph_is_drawn(k8sdds: Command, tmp_path: Path) -> None:
    for name in ("lab.svg", "lab.dot"):
        done = k8sdds("lab", "graph", "multicast-4sub", "--network", "weavenet", "-o", name)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / name).stat().st_size > 1000
    assert "10.32.4.2" in (tmp_path / "lab.svg").read_text()


@USERS
def test_doctor_checks_the_prerequisites_of_this_machine(k8sdds: Command, user: int | None) -> None:
    done = k8sdds("doctor", "--json", user=user)
    assert done.returncode == 0, done.stderr
    findings = {row["subject"]: row for row in json.loads(done.stdout)}
    assert findings["network weavenet"]["ok"]
    assert all(row["remedy"] for row in findings.values() if not row["ok"])
    assert "can be created" in findings["namespaces"]["says"]
    if "cpu" in cgroups.own_cgroup().folders:
        assert findings["CPU limits of pods"]["ok"] == (user is None)


def test_clean_keeps_objects_that_k8sdds_did_not_create(tmp_path: Path) -> None:
    """A namespace and a cgroup with similar names remain."""
    # Several controllers of v1 may share a hierarchy.
    folders = [folder / "k8sdds-foreign" for folder in dict.fromkeys(cgroups.own_cgroup().folders.values())]
    # In a /run of its own, where tests that run at the same time do not find the namespace.
    script = 'mount -t tmpfs t /run && ip netns add k8sdds-foreign && "$0" clean --all && ip netns'
    args = ["unshare", "--mount", "sh", "-ec", script, str(K8SDDS)]
    try:
        for folder in folders:
            folder.mkdir()
        done = subprocess.run(args, capture_output=True, text=True, timeout=60, env=environment(tmp_path))
        assert done.returncode == 0, done.stderr
        assert done.stdout.split("\n")[:2] == ["Nothing to clean.", "k8sdds-foreign"]
        assert all(folder.is_dir() for folder in folders)
    finally:
        for folder in folders:
            folder.rmdir()
