"""The Lease that a running campaign holds, so that commands which change the cluster know of it.

A Lease (coordination.k8s.io/v1) names its holder and expires if the holder does not renew it. Pure functions.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from k8sdds import versions
from k8sdds.system import processes, reading

GROUP = "coordination.k8s.io"
LEASES = f"/apis/{GROUP}/v1"
DURATION_S = 120
"""How long a Lease is valid after its last renewal. The clocks of the machines may differ by less than this."""
RENEW_S = 40
"""Interval of renewals: two of them may fail."""
MAX_DESCRIPTION = 300
SELECTOR = f"{versions.MANAGED_BY_LABEL}={versions.MANAGED_BY},{versions.CAMPAIGN_LABEL}"
RIGHTS = (("create", GROUP, "leases"), ("patch", GROUP, "leases"), ("delete", GROUP, "leases"))
"""Rights in the campaign's namespace: (verb, API group, resource)."""


def owner() -> str:
    """Return the identity of this process: host, PID, start time, and what distinguishes the PID from others' PIDs."""
    pid = os.getpid()
    return f"{socket.gethostname()} {pid} {processes.start_time(pid)} {_pid_space()}"


def process_in_use(identity: str) -> str:
    """Describe the process with this identity; empty if it has ended, or the text names no process.

    Only processes of this machine and PID namespace are known to have ended. Machines may have equal host names.
    """
    fields = identity.split()
    if len(fields) not in (3, 4):
        return ""
    host, pid, started, *pid_space = fields
    if host != socket.gethostname() or pid_space not in ([], [_pid_space()]):
        return f"process {pid} on {host}"
    alive = pid.isdigit() and started.isdigit() and processes.is_alive(int(pid), int(started))
    return f"process {pid}" if alive else ""


def _pid_space() -> str:
    """Return the boot of this machine and the PID namespace, within which a PID and its start time are unique."""
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot_id}/{os.stat('/proc/self/ns/pid').st_ino}"


def path(namespace: str) -> str:
    """Return the URL path of a namespace's Leases."""
    return f"{LEASES}/namespaces/{namespace}/leases"


def name(campaign: str) -> str:
    """Return the name of a campaign's Lease. `campaign`: its identifier."""
    return f"k8sdds-{campaign}"


def manifest(campaign: str, title: str, now: datetime) -> dict[str, Any]:
    """Return the Lease of a campaign of this process.

    Args:
        campaign: The campaign's identifier.
        title: The campaign's full name.
        now: The current time.
    """
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Lease",
        "metadata": {
            "name": name(campaign),
            "labels": {versions.MANAGED_BY_LABEL: versions.MANAGED_BY, versions.CAMPAIGN_LABEL: campaign},
            "annotations": {versions.NAME_ANNOTATION: title},
        },
        "spec": {
            "holderIdentity": owner(),
            "leaseDurationSeconds": DURATION_S,
            "acquireTime": timestamp(now),
            "renewTime": timestamp(now),
        },
    }


def renewal(now: datetime) -> dict[str, Any]:
    """Return the fields that renew a Lease."""
    return {"spec": {"renewTime": timestamp(now)}}


def timestamp(now: datetime) -> str:
    """Return a time in the format of the API server (MicroTime)."""
    return now.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class RunningCampaign:
    """A campaign whose Lease is valid."""

    name: str
    namespace: str
    holder: str
    since: str

    def describe(self) -> str:
        """Return the campaign in one line. Any user who may create a Lease can have written its parts."""
        text = f"{self.name} in namespace {self.namespace}, {self.holder}, since {self.since}"
        return reading.one_line(text, MAX_DESCRIPTION)


def running(leases: Iterable[Mapping[str, Any]], now: datetime) -> list[RunningCampaign]:
    """Return the campaigns whose Leases have not expired and whose processes have not ended."""
    found = []
    for lease in leases:
        metadata, spec = lease.get("metadata") or {}, lease.get("spec") or {}
        holder = process_in_use(str(spec.get("holderIdentity") or ""))
        if holder and now < _expiry(spec):
            title = (metadata.get("annotations") or {}).get(versions.NAME_ANNOTATION) or metadata.get("name")
            since = str(spec.get("acquireTime") or "an unknown time").partition(".")[0]
            found.append(RunningCampaign(str(title), str(metadata.get("namespace")), holder, f"{since}Z"))
    return found


def _expiry(spec: Mapping[str, Any]) -> datetime:
    """Return when a Lease expires. A Lease without valid times has expired."""
    try:
        renewed = datetime.fromisoformat(str(spec["renewTime"]))
        return renewed + timedelta(seconds=float(spec["leaseDurationSeconds"]))
    except (KeyError, ValueError, TypeError, OverflowError):
        return datetime.min.replace(tzinfo=UTC)
