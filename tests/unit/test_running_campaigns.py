"""Commands that change a cluster refuse while a campaign holds a Lease there.

The hosts answer as control planes and their API servers do.
"""

from __future__ import annotations

import contextlib
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
from k8sdds.model.profile import Profile
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
    error: str = ""
    """Why the API server cannot be read."""
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
        if self.error:
            raise PrerequisiteError(self.error)
        return {"items": self.objects.get(path.rpartition("/")[2], [])}

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

    def step(self, title: str) -> None:
        pass

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


def test_a_campaign_prevents_changes_unless_they_are_forced(host: ControlPlane) -> None:
    assert refuse(host) == []
    host.leases.append(held_lease())
    with pytest.raises(PrerequisiteError, match=REFUSED) as refused:
        refuse(host)
    (note,) = refuse(host, force=True)
    assert note.startswith(REFUSED)
    # The help, the remedy and the note state the same consequence.
    (option,) = [item for item in cli_options.Force.__metadata__ if getattr(item, "help", None)]  # type: ignore[attr-defined]
    for text in (refused.value.remedy, note, option.help):
        assert running_campaigns.CONSEQUENCE in text
    assert "--force" in refused.value.remedy


@pytest.mark.parametrize(
    ("host", "why"),
    [
        (ControlPlane(error=REFUSES_CONNECTIONS), REFUSES_CONNECTIONS),
        (ControlPlane(reachable=False), "master: cannot be reached: timed out"),
    ],
)
def test_unreadable_campaigns_are_reported_and_prevent_what_must_read_them(
    host: ControlPlane, why: str
) -> None:
    for notes in (refuse(host), refuse(host, force=True), refuse(host, force=True, must_read=True)):
        (note,) = notes
        assert note.startswith("cannot read which campaigns run on this cluster: ") and why in note
    with pytest.raises(PrerequisiteError, match="cannot read which campaigns") as refused:
        refuse(host, must_read=True)
    assert "--force" in refused.value.remedy


def test_a_machine_without_a_cluster_runs_no_campaign() -> None:
    assert refuse(ControlPlane(has_cluster=False, error="kubectl: not found"), must_read=True) == []


# -- deploy and destroy -----------------------------------------------------------------------------------


LOCAL = """\
name: mine
provider: local
software: bundle
nodes:
  - {name: master, roles: [control-plane]}
  - {name: pi1}
"""


@pytest.fixture
def local(host: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the states of the local nodes of a profile, by name; a test can change them."""
    states = {"master": "running", "pi1": "running"}

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
    monkeypatch.setattr(deploy_flow, "create_machines", change)
    # What the cache of this machine has does not matter.
    monkeypatch.setattr(deploy_flow, "_provide_local", lambda *_: None)
    monkeypatch.setattr(running_campaigns, "Connections", connect)
    return states


def deploy_local(interface: Interface, force: bool = False) -> None:
    options = deploy_flow.Options(force=force)
    deploy_flow.deploy(profiles.parse(LOCAL, "mine.yaml"), options, cast(deploy_flow.Interface, interface))


def destroy_local(interface: Interface, force: bool = False) -> None:
    options = destroy.Options(force=force)
    progress = cast(Any, interface.progress)
    destroy.destroy(profiles.parse(LOCAL, "mine.yaml"), options, interface.confirm, progress, interface.note)


@pytest.mark.parametrize("command", [deploy_local, destroy_local])
def test_a_worker_that_does_not_run_leaves_the_campaigns_protected(
    command: Callable[..., None], host: ControlPlane, local: dict[str, str]
) -> None:
    local["pi1"] = "stopped"
    host.leases.append(held_lease())
    interface = Interface()
    with pytest.raises(PrerequisiteError, match=REFUSED):
        command(interface)
    assert interface.asked == 0
    with pytest.raises(Changed):
        command(interface, force=True)
    (note,) = interface.notes  # once, although the check is repeated after the question
    assert note.startswith(REFUSED)


@pytest.mark.parametrize("command", [deploy_local, destroy_local])
def test_a_campaign_that_starts_while_the_user_is_asked_is_protected(
    command: Callable[..., None], host: ControlPlane, local: dict[str, str]
) -> None:
    local["pi1"] = "stopped"
    interface = Interface(meanwhile=lambda: host.leases.append(held_lease()))
    with pytest.raises(PrerequisiteError, match=REFUSED):
        command(interface)
    assert interface.asked == 1


@pytest.mark.parametrize("command", [deploy_local, destroy_local])
@pytest.mark.parametrize("states", [{"master": "stopped", "pi1": "running"}, {"pi1": "running"}])
def test_a_cluster_whose_control_plane_does_not_run_can_be_changed(
    command: Callable[..., None], states: dict[str, str], local: dict[str, str]
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


@pytest.fixture
def machines(host: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> Profile:
    """Return a profile of other machines than local nodes, of which one has something to change."""
    mine = profiles.parse(LOCAL.replace("provider: local\n", ""), "mine.yaml")
    connections = Connected({"master": host, "pi1": ControlPlane(name="pi1")})
    marked = facts.parse("marker\tmine\n")
    action = Action("pi1", "labels", "label the node", "true")
    for flow in (deploy_flow, destroy):
        monkeypatch.setattr(flow, "Connections", lambda *_: connections)
        monkeypatch.setattr(flow, "survey", lambda *_: MachineSurvey({"master": marked, "pi1": marked}))
        monkeypatch.setattr(flow, "apply_plan", change)
    monkeypatch.setattr(deploy_flow, "desired_state", lambda *_: DesiredStub())
    monkeypatch.setattr(deploy_flow, "plan_within", lambda *_: [action])
    monkeypatch.setattr(profiles, "targets", lambda _: ())
    return mine


@dataclass
class DesiredStub:
    """What `deploy` passes to the plan, which is fixed here."""

    left_out: Sequence[object] = ()


def deploy_machines(mine: Profile, interface: Interface) -> None:
    deploy_flow.deploy(mine, deploy_flow.Options(), cast(deploy_flow.Interface, interface))


def destroy_machines(mine: Profile, interface: Interface) -> None:
    progress = cast(Any, interface.progress)
    destroy.destroy(mine, destroy.Options(), interface.confirm, progress, interface.note)


@pytest.mark.parametrize("command", [deploy_machines, destroy_machines])
def test_deploy_and_destroy_check_before_and_after_their_question(
    command: Callable[..., None], host: ControlPlane, machines: Profile
) -> None:
    interface = Interface(meanwhile=lambda: host.leases.append(held_lease()))
    for asked in (1, 1):  # the second time, the campaign runs already
        with pytest.raises(PrerequisiteError, match=REFUSED):
            command(machines, interface)
        assert interface.asked == asked


@pytest.mark.parametrize("command", [deploy_machines, destroy_machines])
def test_deploy_and_destroy_go_on_without_an_api_server(
    command: Callable[..., None], host: ControlPlane, machines: Profile
) -> None:
    host.error = REFUSES_CONNECTIONS
    interface = Interface()
    with pytest.raises(Changed):
        command(machines, interface)
    (note,) = (note for note in interface.notes if note.startswith("cannot read which campaigns"))
    assert REFUSES_CONNECTIONS in note


# -- network switch ---------------------------------------------------------------------------------------


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


@pytest.fixture
def switches(host: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give the cluster flannel-vxlan, and return the networks to which it is switched."""
    for item in installed_objects("flannel-vxlan"):
        host.objects.setdefault(f"{item['kind'].lower()}s", []).append(item)
    host.objects["nodes"] = NODES
    made: list[str] = []

    def switch(profile: Profile, network: Any, *_: object) -> SwitchResult:
        made.append(network.name)
        return SwitchResult(network.name, False, {}, {}, (), 0.0)

    connections = Connected({"master": host, "pi1": ControlPlane(name="pi1")})
    monkeypatch.setattr(deployed_clusters, "Connections", lambda *_: connections)
    monkeypatch.setattr(deployed_clusters, "survey", lambda *_: MachineSurvey({}))
    monkeypatch.setattr(deployed_clusters, "switch", switch)
    monkeypatch.setattr(profiles, "targets", lambda _: ())
    return made


def switch_to(name: str, interface: Interface, force: bool = False, yes: bool = False) -> None:
    wanted = profile(name)
    confirm = (lambda planned: None) if yes else interface.confirm
    deployed_clusters.switch_and_verify(
        wanted, wanted.network, False, interface.note, confirm=confirm, force=force
    )


def test_a_switch_that_changes_something_refuses(host: ControlPlane, switches: list[str]) -> None:
    host.leases.append(held_lease())
    interface = Interface()
    for yes in (True, False):
        with pytest.raises(PrerequisiteError, match=REFUSED):
            switch_to("flannel-hostgw", interface, yes=yes)
    assert (interface.asked, switches) == (0, [])
    switch_to("flannel-hostgw", interface, force=True)
    (note,) = interface.notes
    assert note.startswith(REFUSED)
    assert (interface.asked, switches) == (1, ["flannel-hostgw"])


def test_a_switch_to_the_installed_network_is_not_refused(host: ControlPlane, switches: list[str]) -> None:
    host.leases.append(held_lease())
    interface = Interface()
    switch_to("flannel-vxlan", interface)
    assert (interface.asked, interface.notes, switches) == (0, [], ["flannel-vxlan"])
    # The same network has pods to recreate after an interrupted switch.
    host.objects["pods"] = [old_pod()]
    with pytest.raises(PrerequisiteError, match=REFUSED):
        switch_to("flannel-vxlan", interface)


def test_a_switch_checks_again_after_its_question(host: ControlPlane, switches: list[str]) -> None:
    interface = Interface(meanwhile=lambda: host.leases.append(held_lease()))
    with pytest.raises(PrerequisiteError, match=REFUSED):
        switch_to("flannel-hostgw", interface)
    assert (interface.asked, switches) == (1, [])


def test_a_switch_needs_to_read_the_campaigns(
    host: ControlPlane, switches: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = ControlPlane.get

    def get(self: ControlPlane, path: str, **query: Any) -> dict[str, Any]:
        if path.endswith("/leases"):
            raise PrerequisiteError("the server was unable to return a response")
        return answers(self, path, **query)

    monkeypatch.setattr(ControlPlane, "get", get)
    interface = Interface()
    with pytest.raises(K8sddsError, match=r"cannot read which campaigns run .*the server was unable"):
        switch_to("flannel-hostgw", interface)
    switch_to("flannel-hostgw", interface, force=True)
    assert switches == ["flannel-hostgw"] and "the server was unable" in interface.notes[0]


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
