"""The Lease of a campaign protects its cluster while its process runs and renews it."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from k8sdds import versions
from k8sdds.kubernetes import leases

OTHER_BOOT = "0f2d1c5e-8a4b-4f6e-9d3c-1b2a3c4d5e6f"
NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)


def lease(**spec: Any) -> dict[str, Any]:
    """Return a Lease as the API server stores it."""
    made = leases.manifest("quickstart-1a2b3c", "20261123T120000Z-quickstart", NOW)
    made["metadata"]["namespace"] = "k8sdds-quickstart-1a2b3c"
    return made | {"spec": made["spec"] | spec}


def running(lease: dict[str, Any], after_s: float = 0) -> list[leases.RunningCampaign]:
    return leases.running([lease], NOW + timedelta(seconds=after_s))


def test_a_lease_names_the_campaign_its_process_and_its_start() -> None:
    (campaign,) = running(lease(), after_s=60)
    assert campaign.describe() == (
        f"20261123T120000Z-quickstart in namespace k8sdds-quickstart-1a2b3c, process {os.getpid()},"
        " since 2026-11-23T12:00:00Z"
    )


def test_a_lease_expires_unless_it_is_renewed() -> None:
    assert running(lease(), after_s=leases.DURATION_S - 1)
    assert not running(lease(), after_s=leases.DURATION_S)
    renewed = lease(**leases.renewal(NOW + timedelta(seconds=leases.RENEW_S))["spec"])
    assert running(renewed, after_s=leases.DURATION_S)
    assert not running(renewed, after_s=leases.DURATION_S + leases.RENEW_S)

    assert 3 * leases.RENEW_S <= leases.DURATION_S  # two renewals may fail


@pytest.mark.parametrize(
    ("identity", "holder"),
    [
        ("HOST PID STARTED BOOT PIDS", "process PID"),
        # The process with this number started at another time, or there is none.
        ("HOST PID 1 BOOT PIDS", ""),
        ("HOST 17 4711 BOOT PIDS", ""),
        ("", ""),
        # A process of another machine is known only by its renewals. Machines and containers may have the same name.
        (f"elsewhere.test 17 4711 {OTHER_BOOT} 4026531836", "process 17 on elsewhere.test"),
        (f"HOST 17 4711 {OTHER_BOOT} PIDS", "process 17 on HOST"),
        ("HOST 17 4711 BOOT 4026531999", "process 17 on HOST"),
        # Identities without a machine are compared by host name.
        ("HOST PID STARTED", "process PID"),
        ("HOST PID 1", ""),
        ("elsewhere.test 17 4711", "process 17 on elsewhere.test"),
        ("not a process at all", "holder not a process at all"),
        (f"host 17 {'9' * 30}", f"holder host 17 {'9' * 30}"),
    ],
)
def test_holders_of_a_lease(identity: str, holder: str) -> None:
    own = dict(zip(("HOST", "PID", "STARTED", "BOOT", "PIDS"), leases.owner().split(), strict=True))

    def with_own(text: str) -> str:
        return " ".join(own.get(word, word) for word in text.split(" "))

    held = lease(holderIdentity=with_own(identity))
    assert [campaign.holder for campaign in running(held)] == ([with_own(holder)] if holder else [])
    assert not running(held, after_s=leases.DURATION_S)


def test_what_others_wrote_into_a_lease_is_one_short_printable_line() -> None:
    evil = "\x1b]0;title\x07\x1b[2Jall is well\n\u202e" + "x" * 10_000
    found = lease(holderIdentity=f"{evil}", acquireTime=evil)
    found["metadata"] |= {"namespace": evil, "annotations": {versions.NAME_ANNOTATION: evil}}
    other = lease(holderIdentity=f"\x1b[2J{'h' * 10_000} 17 4711")
    for entry in (found, other):
        (campaign,) = running(entry)
        assert campaign.describe().isprintable() and len(campaign.describe()) < 1000
    assert running(lease(acquireTime=None))[0].since == "an unknown time"


@pytest.mark.parametrize(
    "spec",
    [
        {"renewTime": None},
        {"renewTime": "soon"},
        {"leaseDurationSeconds": None},
        {"leaseDurationSeconds": "x"},
    ],
)
def test_a_lease_without_valid_times_has_expired(spec: dict[str, Any]) -> None:
    assert not running(lease(**spec))
    assert not leases.running([{}], NOW)
