"""The Lease that a running campaign holds, so that commands which change the cluster know of it.

A Lease (coordination.k8s.io/v1) names its holder and expires if the holder does not renew it. Pure functions.
"""

from __future__ import annotations

import os
import re
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
"""How long a Lease is valid after its last renewal.

The clocks of the machines must differ by less than DURATION_S - RENEW_S, and by less after failed renewals. Otherwise,
the Lease of a running campaign has expired for a machine whose clock is ahead.
"""
RENEW_S = 40
"""Interval of renewals: two of them may fail."""
SELECTOR = f"{versions.MANAGED_BY_LABEL}={versions.MANAGED_BY},{versions.CAMPAIGN_LABEL}"
"""Selects what campaigns create: Leases, namespaces and pods."""
RIGHTS = (("create", GROUP, "leases"), ("patch", GROUP, "leases"), ("delete", GROUP, "leases"))
"""Rights in the campaign's namespace: (verb, API group, resource)."""
MAX_SHOWN = 200
"""Length of a shown text of a Lease, which any user who can create Leases writes."""

# The machine is missing in identities that k8sdds 0.1 wrote on namespaces and pods.
_IDENTITY = re.compile(
    r"(?P<host>\S+) (?P<pid>[0-9]{1,20}) (?P<started>[0-9]{1,20})(?: (?P<machine>\S+ [0-9]+))?"
)


def owner() -> str:
    """Return the identity of this process: host name, PID, start time, and the machine.

    The host name is only shown: cloned machines and containers may have the same.
    """
    return f"{socket.gethostname()} {os.getpid()} {processes.start_time(os.getpid())} {_machine()}"


def _machine() -> str:
    """Return the boot ID of this machine, and the inode of the PID namespace in which PIDs are unique."""
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot_id} {Path('/proc/self/ns/pid').stat().st_ino}"


def process_in_use(identity: str) -> str:
    """Describe the process with this identity; empty if it has ended, or the identity is empty.

    Only processes of this machine and PID namespace are known to have ended. An unknown identity counts as in use.
    """
    match = _IDENTITY.fullmatch(identity)
    if match is None:
        return f"holder {_shown(identity)}" if identity.strip() else ""
    host, pid, started, machine = match.group("host", "pid", "started", "machine")
    is_here = host == socket.gethostname() if machine is None else machine == _machine()
    if not is_here:
        return f"process {pid} on {_shown(host)}"
    return f"process {pid}" if processes.is_alive(int(pid), int(started)) else ""


def _shown(value: object) -> str:
    return reading.one_line(str(value), MAX_SHOWN)


def path(namespace: str) -> str:
    """Return the URL path of a namespace's Leases."""
    return f"{LEASES}/namespaces/{namespace}/leases"


def name(campaign: str) -> str:
    """Return the name of a campaign's Lease. `campaign`: its identifier."""
    return f"k8sdds-{campaign}"


def manifest(campaign: str, title: str, now: datetime) -> dict[str, Any]:
    """Return the Lease of a campaign of this process: `campaign` is its identifier, `title` its full name."""
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
        """Return the campaign in one line."""
        return f"{self.name} in namespace {self.namespace}, {self.holder}, since {self.since}"


def running(leases: Iterable[Mapping[str, Any]], now: datetime) -> list[RunningCampaign]:
    """Return the campaigns whose Leases have not expired and whose processes have not ended."""
    found = []
    for lease in leases:
        metadata, spec = lease.get("metadata") or {}, lease.get("spec") or {}
        holder = process_in_use(str(spec.get("holderIdentity") or ""))
        if holder and now < _expiry(spec):
            title = (metadata.get("annotations") or {}).get(versions.NAME_ANNOTATION) or metadata.get("name")
            acquired = str(spec.get("acquireTime") or "")
            since = f"{_shown(acquired.partition('.')[0])}Z" if acquired else "an unknown time"
            found.append(RunningCampaign(_shown(title), _shown(metadata.get("namespace")), holder, since))
    return found


def _expiry(spec: Mapping[str, Any]) -> datetime:
    """Return when a Lease expires. A Lease without valid times has expired."""
    try:
        renewed = datetime.fromisoformat(str(spec["renewTime"]))
        return renewed + timedelta(seconds=float(spec["leaseDurationSeconds"]))
    except (KeyError, ValueError, TypeError, OverflowError):
        return datetime.min.replace(tzinfo=UTC)
