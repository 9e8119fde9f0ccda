"""Commands that change a cluster refuse while a campaign holds a Lease there.

The hosts answer as control planes and their API servers do.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from k8sdds.cli import options as cli_options
from k8sdds.deploy import (
    api_access,
    deployed_clusters,
    destroy,
    facts,
    local_nodes,
    profiles,
    running_campaigns,
)
from k8sdds.deploy import deploy as deploy_flow
from k8sdds.deploy.actions import Action
from k8sdds.deploy.deploy import MachineSurvey
from k8sdds.deploy.network_switch import switch as network_switch
from k8sdds.deploy.network_switch.switch import SwitchResult
from k8sdds.kubernetes import apply, leases
from k8sdds.nodes import LocalNode
from k8sdds.system.errors import K8sddsError, PrerequisiteError
from k8sdds.system.ssh import Host, HostError, ScriptResult
from tests.unit.test_network_manifests import installed, profile

REFUSED = "a campaign is running on this cluster: 20261123T120000Z-quickstart in namespace k8sdds-quickstart"
REFUSES_CONNECTIONS = "https://127.0.0.1:6443 does not answer: Connection refused"


def held_lease() -> dict[str, Any]:
    """Return the Lease of a campaign of this process, as the API server stores it."""
    lease = leases.manifest("quickstart-1a2b3c", "20261123T120000Z-quickstart", datetime.now(UTC))
    lease["metadata"]["namespace"] = "k8sdds-quickstart-1a2b3c"
    return lease


@dataclass
class ControlPlane:
    """A control plane, and the client of its API server, which has these objects, by their resource."""

    objects: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    """Why objects cannot be read, by their resource."""
    has_cluster: bool = True
    reachable: bool = True
    name: str = "master"

    def run(self, script: str, timeout_s: float = 60) -> ScriptResult:
        if not self.reachable:
            raise HostError(self.name, "cannot be reached: timed out")
        if "/etc/kubernetes/admin.conf" in script:
            return ScriptResult(0, "" if self.has_cluster else "missing\n", "")
        return ScriptResult(0, "", "")

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        resource = path.rpartition("/")[2]
        if resource in self.errors:
            raise PrerequisiteError(self.errors[resource])
        return {"items": self.objects.get(resource, [])}

    def resource(self, api_version: str, kind: str) -> str:
        return f"{kind.lower()}s"

    @property
    def leases(self) -> list[dict[str, Any]]:
        return self.objects.setdefault("leases", [])


@dataclass
class Connected:
    """Connections to such hosts."""

    hosts: dict[str, ControlPlane]

    def __enter__(self) -> Connected:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def all(self, work: Callable[[Any], Any], names: Sequence[str]) -> dict[str, Any]:
        return {name: work(self.hosts[name]) for name in names}


class Interface:
    """Collects notes, and lets a campaign start while it asks."""

    def __init__(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.notes: list[str] = []
        self.asked = 0
        self._meanwhile = meanwhile

    def note(self, text: str) -> None:
        self.notes.append(text)

    def confirm(self, *question: object) -> None:
        self.asked += 1
        self._meanwhile()

    confirm_plan = confirm

    @contextlib.contextmanager
    def progress(self, actions: object) -> Any:
        yield None


class Changed(Exception):
    """The cluster would be changed now."""


def change(*_: object, **__: object) -> None:
    raise Changed


@contextlib.contextmanager
def administrator(host: ControlPlane) -> Iterator[ControlPlane]:
    yield host


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K8SDDS_STATE_DIR", str(tmp_path))
    monkeypatch.setattr(api_access, "administrator", administrator)


@pytest.fixture
def host() -> ControlPlane:
    return ControlPlane()


def refuse(host: ControlPlane, force: bool = False, must_read: bool = False) -> list[str]:
    notes: list[str] = []
    running_campaigns.refuse(cast(Host, host), force, notes.append, must_read)
    return notes


# -- the check --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "why"),
    [
        (ControlPlane(errors={"leases": REFUSES_CONNECTIONS}), REFUSES_CONNECTIONS),
        (ControlPlane(reachable=False), ": master: cannot be reached: timed out"),
    ],
)
def test_unreadable_campaigns_are_reported_and_prevent_what_must_read_them(
    host: ControlPlane, why: str
) -> None:
    for notes in (refuse(host), refuse(host, force=True), refuse(host, force=True, must_read=True)):
        (note,) = notes
        assert note.startswith("cannot read which campaigns run on this cluster: master: ") and why in note
    with pytest.raises(PrerequisiteError, match="cannot read which campaigns") as refused:
        refuse(host, must_read=True)
    assert "--force" in refused.value.remedy


def test_a_machine_without_a_cluster_runs_no_campaign() -> None:
    assert refuse(ControlPlane(has_cluster=False, errors={"leases": "not found"}), must_read=True) == []


# -- objects of a cluster ---------------------------------------------------------------------------------


NODES = [
    {
        "metadata": {"name": name, "annotations": {}},
        "spec": {"podCIDR": f"10.244.{number}.0/24"},
        "status": {"addresses": [{"type": "InternalIP", "address": f"192.0.2.{number + 1}"}]},
    }
    for number, name in enumerate(("master", "pi1"))
]


def installed_objects(name: str, ready: int = 2) -> list[dict[str, Any]]:
    """Return the objects of a network as the API server stores them."""
    objects = [item for item in apply.stamped(installed(name).manifests, name) if item["kind"] != "Namespace"]
    for item in objects:
        item["metadata"]["creationTimestamp"] = "2026-11-23T12:00:00Z"
        if item["kind"] == "DaemonSet":
            item["status"] = {"numberReady": ready}
    return objects


def old_pod() -> dict[str, Any]:
    """Return a pod that joined a network before the installed one."""
    joined = {
        "type": "PodReadyToStartContainers",
        "status": "True",
        "lastTransitionTime": "2026-11-23T11:00:00Z",
    }
    return {
        "metadata": {"name": "web", "namespace": "default"}, "spec": {"nodeName": "pi1"},
        "status": {"phase": "Running", "conditions": [joined]},
    }  # fmt: skip


# -- the commands -----------------------------------------------------------------------------------------


LOCAL = """\
name: mine
provider: local
software: bundle
nodes:
  - {name: master, roles: [control-plane]}
  - {name: pi1}
"""
Command = Callable[..., None]
"""Runs a command with an interface, and with `force`."""


@pytest.fixture
def local(host: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the states of the local nodes of a profile, by name; a test can change them."""
    states = {"master": "running", "pi1": "stopped"}

    def ls(cluster: str) -> list[LocalNode]:
        paths = [Path("unused")] * 3
        return [
            LocalNode(cluster, name, "192.0.2.1", 22, "k8sdds", "amd64", cast(Any, state), *paths, ())
            for name, state in states.items()
        ]

    def connect(targets: Sequence[Any], *_: object) -> Connected:
        return Connected({target.name: host for target in targets})

    monkeypatch.setattr(local_nodes.nodes, "ls", ls)
    monkeypatch.setattr(destroy.nodes, "down", change)
    monkeypatch.setattr(deploy_flow.local_nodes, "create", change)
    monkeypatch.setattr(deploy_flow.software, "for_profile", lambda *_: Software())
    monkeypatch.setattr(deploy_flow.software, "check_network", lambda *_: None)
    # What the cache of this machine has does not matter.
    monkeypatch.setattr(deploy_flow, "_provide_local", lambda *_: None)
    monkeypatch.setattr(running_campaigns, "Connections", connect)
    return states


@pytest.fixture
def machines(host: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """Provide other machines than local nodes, with something to change, and a cluster with flannel-vxlan."""
    connections = Connected({"master": host, "pi1": ControlPlane(name="pi1")})
    marked = facts.parse("marker\tmine\n")
    action = Action("pi1", "labels", "label the node", "true")
    for flow in (deploy_flow, destroy, deployed_clusters):
        monkeypatch.setattr(flow, "Connections", lambda *_: connections)
        monkeypatch.setattr(flow, "survey", lambda *_: MachineSurvey({"master": marked, "pi1": marked}))
    for flow in (deploy_flow, destroy):
        monkeypatch.setattr(flow, "apply_plan", change)
    monkeypatch.setattr(deployed_clusters, "switch", change)
    monkeypatch.setattr(deploy_flow, "desired_state", lambda *_: DesiredStub())
    monkeypatch.setattr(deploy_flow, "plan_within", lambda *_: [action])
    monkeypatch.setattr(profiles, "targets", lambda _: ())
    for item in installed_objects("flannel-vxlan"):
        host.objects.setdefault(f"{item['kind'].lower()}s", []).append(item)
    host.objects["nodes"] = NODES


@dataclass
class Software:
    """The software of local nodes."""

    bundle: None = None


@dataclass
class DesiredStub:
    """What `deploy` passes to the plan, which is fixed here."""

    left_out: Sequence[object] = ()


def deploy_local(interface: Interface, force: bool = False, text: str = LOCAL) -> None:
    options = deploy_flow.Options(force=force, connect=deploy_flow.Connections)
    deploy_flow.deploy(profiles.parse(text, "mine.yaml"), options, cast(deploy_flow.Interface, interface))


def destroy_local(interface: Interface, force: bool = False, text: str = LOCAL) -> None:
    options = destroy.Options(force=force, connect=destroy.Connections)
    progress = cast(Any, interface.progress)
    destroy.destroy(profiles.parse(text, "mine.yaml"), options, interface.confirm, progress, interface.note)


def on_machines(command: Command) -> Command:
    return functools.partial(command, text=LOCAL.replace("provider: local\n", ""))


def switch_to(interface: Interface, force: bool = False, name: str = "flannel-hostgw") -> None:
    wanted = profile(name)
    deployed_clusters.switch_and_verify(
        wanted, wanted.network, False, interface.note, confirm=interface.confirm, force=force
    )


COMMANDS = [deploy_local, destroy_local, on_machines(deploy_local), on_machines(destroy_local), switch_to]
every_command = pytest.mark.parametrize("command", COMMANDS)


@every_command
def test_every_command_refuses_unless_it_is_forced(
    command: Command, host: ControlPlane, local: dict[str, str], machines: None
) -> None:
    host.leases.append(held_lease())
    interface = Interface()
    with pytest.raises(PrerequisiteError, match=REFUSED) as refused:
        command(interface)
    assert interface.asked == 0
    with pytest.raises(Changed):
        command(interface, force=True)
    (note,) = (note for note in interface.notes if "campaign" in note)  # once, although there are two checks
    assert note.startswith(REFUSED)
    # The help, the remedy and the note state the same consequence.
    (option,) = [item for item in cli_options.Force.__metadata__ if getattr(item, "help", None)]  # type: ignore[attr-defined]
    for text in (refused.value.remedy, note, option.help):
        assert running_campaigns.CONSEQUENCE in text
    assert "--force" in refused.value.remedy


@every_command
def test_a_campaign_that_starts_while_the_user_is_asked_is_protected(
    command: Command, host: ControlPlane, local: dict[str, str], machines: None
) -> None:
    interface = Interface(meanwhile=lambda: host.leases.append(held_lease()))
    with pytest.raises(PrerequisiteError, match=REFUSED):
        command(interface)
    assert interface.asked == 1


@every_command
def test_only_a_switch_needs_to_read_the_campaigns(
    command: Command, host: ControlPlane, local: dict[str, str], machines: None
) -> None:
    host.errors["leases"] = "the server was unable to return a response"
    interface = Interface()
    if command is switch_to:
        with pytest.raises(K8sddsError, match=r"cannot read which campaigns run .*the server was unable"):
            command(interface)
    with pytest.raises(Changed):
        command(interface, force=command is switch_to)
    (note,) = (note for note in interface.notes if "campaign" in note)
    assert "the server was unable" in note


@pytest.mark.parametrize("command", [deploy_local, destroy_local])
@pytest.mark.parametrize("states", [{"master": "stopped", "pi1": "running"}, {"pi1": "running"}])
def test_a_cluster_whose_control_plane_does_not_run_can_be_changed(
    command: Command, states: dict[str, str], local: dict[str, str]
) -> None:
    local.clear()
    local.update(states)
    interface = Interface()
    with pytest.raises(Changed):
        command(interface)
    assert interface.notes == [
        "cannot read which campaigns run on this cluster: the control plane master does not run"
    ]


def test_the_first_deploy_reads_no_campaigns(host: ControlPlane, local: dict[str, str]) -> None:
    local.clear()
    host.leases.append(held_lease())
    interface = Interface()
    with pytest.raises(Changed):
        deploy_local(interface)
    assert (interface.asked, interface.notes) == (1, [])


def test_a_switch_to_the_installed_network_is_not_refused(
    host: ControlPlane, machines: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    unchanged = SwitchResult("flannel-vxlan", False, {}, {}, (), 0.0)
    monkeypatch.setattr(deployed_clusters, "switch", lambda *_: unchanged)
    host.leases.append(held_lease())
    interface = Interface()
    switch_to(interface, name="flannel-vxlan")
    assert (interface.asked, interface.notes) == (0, [])
    # The same network has pods to recreate after an interrupted switch.
    host.objects["pods"] = [old_pod()]
    with pytest.raises(PrerequisiteError, match=REFUSED):
        switch_to(interface, name="flannel-vxlan")


# -- the installed network --------------------------------------------------------------------------------


def test_the_installed_network_is_one_whose_agent_runs(host: ControlPlane) -> None:
    agents = [item for item in installed_objects("flannel-vxlan") if item["kind"] == "DaemonSet"]
    host.objects["daemonsets"] = agents
    assert network_switch.current(cast(Host, host)) == ("flannel-vxlan", None)
    agents[0]["status"] = {"numberReady": 0}
    with pytest.raises(PrerequisiteError, match="no agent of the network flannel-vxlan is ready"):
        network_switch.current(cast(Host, host))
    host.objects["daemonsets"] = []
    with pytest.raises(PrerequisiteError, match="no network that k8sdds installed"):
        network_switch.current(cast(Host, host))
