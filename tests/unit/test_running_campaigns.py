"""Commands that change a cluster refuse while a campaign holds a Lease there.

The hosts answer as control planes and their API servers do. tests/cluster/test_changed_network.py runs the commands.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from k8sdds.cli import options as cli_options
from k8sdds.deploy import api_access, local_nodes, profiles, running_campaigns
from k8sdds.deploy.network_switch import switch as network_switch
from k8sdds.kubernetes import apply, leases
from k8sdds.nodes import LocalNode
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.ssh import Host, HostError, ScriptResult
from tests.unit.test_network_manifests import installed

REFUSED = "a campaign is running on this cluster: 20261123T120000Z-quickstart in namespace k8sdds-quickstart"
REFUSES_CONNECTIONS = "https://127.0.0.1:6443 does not answer: Connection refused"


def held_lease() -> dict[str, Any]:
    """Return the Lease of a campaign of this process, as the API server stores it."""
    lease = leases.manifest("quickstart-1a2b3c", "20261123T120000Z-quickstart", datetime.now(UTC))
    lease["metadata"]["namespace"] = "k8sdds-quickstart-1a2b3c"
    return lease


@dataclass
class ControlPlane:
    """A control plane, and the client of its API server, which has these objects."""

    objects: list[dict[str, Any]] = field(default_factory=list)
    error: str = ""
    """Why objects cannot be read."""
    has_cluster: bool = True
    reachable: bool = True
    name: str = "master"

    def run(self, script: str) -> ScriptResult:
        if not self.reachable:
            raise HostError(self.name, "cannot be reached: timed out")
        return ScriptResult(0, "" if self.has_cluster else "missing\n", "")

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        if self.error:
            raise PrerequisiteError(self.error)
        return {"items": self.objects}

    def resource(self, api_version: str, kind: str) -> str:
        return f"{kind.lower()}s"


@contextlib.contextmanager
def administrator(host: ControlPlane) -> Iterator[ControlPlane]:
    yield host


@pytest.fixture(autouse=True)
def by_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_access, "administrator", administrator)


def refuse(host: ControlPlane, force: bool = False, must_read: bool = False) -> list[str]:
    notes: list[str] = []
    running_campaigns.refuse(cast(Host, host), force, notes.append, must_read)
    return notes


def test_a_running_campaign_prevents_changes_unless_they_are_forced() -> None:
    host = ControlPlane([held_lease()])
    with pytest.raises(PrerequisiteError, match=REFUSED) as refused:
        refuse(host)
    (note,) = refuse(host, force=True)
    assert note.startswith(REFUSED) and "--force" in refused.value.remedy
    # The help, the remedy and the note state the same consequence.
    (option,) = cli_options.Force.__metadata__  # type: ignore[attr-defined]
    for text in (refused.value.remedy, note, option):
        assert running_campaigns.CONSEQUENCE in text


@pytest.mark.parametrize(
    ("host", "why"),
    [
        (ControlPlane(error=REFUSES_CONNECTIONS), REFUSES_CONNECTIONS),
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
    assert refuse(ControlPlane(has_cluster=False, error="not found"), must_read=True) == []


def test_a_campaign_that_starts_while_the_user_is_asked_is_protected() -> None:
    host, notes = ControlPlane(), list[str]()
    check = partial(running_campaigns.refuse, cast(Host, host), False)
    with pytest.raises(PrerequisiteError, match=REFUSED):
        running_campaigns.ask(check, notes.append, lambda: host.objects.append(held_lease()))
    # What both checks report is shown once.
    host.error = REFUSES_CONNECTIONS
    running_campaigns.ask(check, notes.append, lambda: None)
    assert len(notes) == 1


LOCAL = """\
name: mine
provider: local
software: bundle
nodes:
  - {name: master, roles: [control-plane]}
  - {name: pi1}
"""


@pytest.mark.parametrize(
    ("states", "notes"),
    [
        ({"master": "stopped", "pi1": "running"}, 1),
        ({"pi1": "running"}, 1),
        ({}, 0),  # before the first deploy
    ],
)
def test_local_nodes_whose_control_plane_does_not_run_can_be_changed(
    states: dict[str, str], notes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [Path("unused")] * 3
    listed = [
        LocalNode("mine", name, "192.0.2.1", 22, "k8sdds", "amd64", cast(Any, state), *paths, ())
        for name, state in states.items()
    ]
    monkeypatch.setattr(local_nodes.nodes, "ls", lambda cluster: listed)
    noted: list[str] = []
    running_campaigns.refuse_on_local_nodes(profiles.parse(LOCAL, "mine.yaml"), False, noted.append)
    assert (
        noted
        == ["cannot read which campaigns run on this cluster: the control plane master does not run"] * notes
    )


def test_the_installed_network_is_one_whose_agent_runs() -> None:
    agents = [
        item
        for item in apply.stamped(installed("flannel-vxlan").manifests, "flannel-vxlan")
        if item["kind"] == "DaemonSet"
    ]
    host = cast(Host, ControlPlane(agents))
    agents[0]["status"] = {"numberReady": 2}
    assert network_switch.current(host) == ("flannel-vxlan", None)
    agents[0]["status"] = {"numberReady": 0}
    with pytest.raises(PrerequisiteError, match="no agent of the network flannel-vxlan is ready"):
        network_switch.current(host)
    agents.clear()
    with pytest.raises(PrerequisiteError, match="no network that k8sdds installed"):
        network_switch.current(host)
