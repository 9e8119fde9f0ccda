"""The Lease of a campaign protects its cluster while its process runs and renews it."""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from k8sdds import versions
from k8sdds.kubernetes import leases

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
    for holder in (f"{socket.gethostname()} {os.getpid()} 1", "", "not a process at all"):
        assert not running(lease(holderIdentity=holder))


def test_an_equal_host_name_does_not_make_a_process_one_of_this_machine() -> None:
    host, pid, started, _ = leases.owner().split()
    cloned = lease(holderIdentity=f"{host} {pid} {int(started) + 1} another-boot/4026531836")
    assert running(cloned)[0].holder == f"process {pid} on {host}"


def test_what_somebody_else_wrote_is_printed_as_one_line() -> None:
    hostile = lease(acquireTime="\x1b[2J\nnow")
    hostile["metadata"]["annotations"][versions.NAME_ANNOTATION] = "x\x1b]0;title\x07" + "y" * 1000
    text = running(hostile)[0].describe()
    assert text.isprintable() and len(text) <= leases.MAX_DESCRIPTION


def test_a_process_of_another_machine_is_known_only_by_its_renewals() -> None:
    elsewhere = lease(holderIdentity="elsewhere.test 17 4711")
    assert running(elsewhere)[0].holder == "process 17 on elsewhere.test"
    assert not running(elsewhere, after_s=leases.DURATION_S)


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
