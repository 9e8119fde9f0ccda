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


def test_two_renewals_may_fail() -> None:
    assert 3 * leases.RENEW_S <= leases.DURATION_S


def test_a_process_that_has_ended_holds_no_lease() -> None:
    # The process with this number started at another time.
    host, pid, _, *machine = leases.owner().split()
    for holder in (" ".join((host, pid, "1", *machine)), ""):
        assert not running(lease(holderIdentity=holder))


def test_a_process_of_another_machine_is_known_only_by_its_renewals() -> None:
    elsewhere = lease(holderIdentity=f"elsewhere.test 17 4711 {OTHER_BOOT} 4026531836")
    assert running(elsewhere)[0].holder == "process 17 on elsewhere.test"
    assert not running(elsewhere, after_s=leases.DURATION_S)


def test_machines_and_containers_with_the_same_host_name_are_told_apart() -> None:
    # These processes do not exist here.
    host, _, _, boot, pids = leases.owner().split()
    for machine in (f"{OTHER_BOOT} {pids}", f"{boot} 4026531999"):
        same_name = lease(holderIdentity=f"{host} 17 4711 {machine}")
        assert running(same_name)[0].holder == f"process 17 on {host}"
    assert not running(lease(holderIdentity=f"{host} 17 4711 {boot} {pids}"))


def test_identities_without_a_machine_are_compared_by_host_name() -> None:
    host, pid, started, *_ = leases.owner().split()
    assert leases.process_in_use(f"{host} {pid} {started}") == f"process {pid}"
    assert leases.process_in_use(f"{host} {pid} 1") == ""
    assert leases.process_in_use("elsewhere.test 17 4711") == "process 17 on elsewhere.test"


def test_an_unknown_identity_is_in_use_until_its_lease_expires() -> None:
    unknown = lease(holderIdentity="not a process at all")
    assert running(unknown)[0].holder == "holder not a process at all"
    assert not running(unknown, after_s=leases.DURATION_S)
    assert running(lease(holderIdentity=f"host 17 {'9' * 5000}"))


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
