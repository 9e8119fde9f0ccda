"""The verification of policies: what it probes, and what it concludes. tests/cluster runs it."""

from __future__ import annotations

from typing import Any

import pytest

from k8sdds.discovery import PEERS, SERVER
from k8sdds.model.application import Application
from k8sdds.recommend.network_policy import Communication
from k8sdds.recommend.policy_verification import Finding, check, conclude, probes
from k8sdds.system.errors import InputError, RequirementsNotMet
from k8sdds.testbeds.probing import PORT

NODES: dict[str, Any] = {
    "camera": {"publishes": ["images"]},
    "planner": {"subscribes": ["images"], "publishes": ["commands"]},
    "arm": {"subscribes": ["commands"]},
}
FLOWS = [{"name": name, "payload_bytes": 100, "rate": 10} for name in ("images", "commands")]
ROBOT = Application.model_validate({"name": "robot", "nodes": NODES, "flows": FLOWS})


@pytest.mark.parametrize(
    ("used", "port"),
    [
        (Communication(domain=1), 7660),
        (Communication("fastdds", discovery=SERVER), 7411),
        (Communication("zenoh", discovery=PEERS), PORT),
    ],
)
def test_no_policy_admits_what_is_probed(used: Communication, port: int) -> None:
    assert {(each.sender, each.receiver, each.port) for each in probes(ROBOT, used)} == {
        *(("a stranger", receiver, port) for receiver in NODES),
        ("planner", "camera", PORT), ("camera", "planner", PORT), ("planner", "arm", PORT),
        ("arm", "camera", port), ("camera", "arm", port),
    }  # fmt: skip


def findings(flows: tuple[bool, ...], refused: tuple[bool, ...]) -> list[Finding]:
    """Return findings of which these have passed."""
    return [
        Finding("it", "found", admitted, passed)
        for admitted, all_ in ((True, flows), (False, refused))
        for passed in all_
    ]


@pytest.mark.parametrize(
    ("flows", "refused", "message"),
    [
        ((True, True), (True, True), "does not enforce policies: all that they refuse has passed"),
        (
            (True, True),
            (True, False),
            "enforces only a part: 1 of 2 connections that no policy admits passed",
        ),
        ((False, True), (False, False), "refuses 1 of 2 flows that the policies admit"),
        (
            (False, True),
            (True, False),
            "enforces only a part: 1 of 2 connections that no policy admits passed;"
            " and it refuses 1 of 2 flows that the policies admit",
        ),
    ],
)
def test_a_network_enforces_policies_or_does_not(
    flows: tuple[bool, ...], refused: tuple[bool, ...], message: str
) -> None:
    with pytest.raises(RequirementsNotMet) as raised:
        conclude(findings(flows, refused), "this network")
    assert raised.value.message == f"this network {message}"
    conclude(findings((True, True), (False, False)), "this network")


@pytest.mark.parametrize(
    "used", [Communication("connext"), Communication(discovery="multicast", group="239.1.1.1")]
)
def test_what_test_pods_cannot_run_is_refused(used: Communication) -> None:
    with pytest.raises(InputError, match=r"--verify cannot run connext|multicast group of DDS"):
        check(used)
