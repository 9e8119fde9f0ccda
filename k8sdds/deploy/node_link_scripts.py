"""Write the scripts that emulate the link of a node of a cluster, and end it.

Rules of nftables divert the packets of the node's network interface to two pairs of veths, between which `k8sdds-link`
forwards:

    interface, egress  → k8sdds-near → k8sdds-near-fw → k8sdds-link → k8sdds-far-fw → k8sdds-far → interface, egress
    interface, ingress → k8sdds-far → k8sdds-far-fw → k8sdds-link → k8sdds-near-fw → k8sdds-near → interface, ingress

The interface keeps its addresses, routes and queues. All of it belongs to a transient unit of systemd, which removes it
when it ends: at the end of a trial, when the program or its shell is killed, and after a deadline if the command is.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from k8sdds import versions
from k8sdds.deploy.scripts import shell
from k8sdds.model.offloads import SEGMENTATION

NEAR, FAR = "k8sdds-near-fw", "k8sdds-far-fw"
"""The interfaces between which `k8sdds-link` forwards: those of the node, and of the network."""
UNIT = "k8sdds-link.service"
FOLDER = "/run/k8sdds-link"
LOCK = "/run/systemd"
"""Folder that a script locks while it starts or ends the emulation: it continues when its connection breaks."""
LOCKED_S = 20
"""How long a script waits for the end of another one."""
TCP_PORTS = (*versions.KUBERNETES_PORTS, 179)
"""Ports whose packets are not diverted, in addition to that of SSH: Kubernetes and its network must work meanwhile."""
UDP_PORTS = (123, 319, 320)
"""The same for NTP and PTP, because delays are compared with the clocks that they set."""
PROGRAMS = ("nft", "tc", "ethtool", "ctr", "setpriv", "systemd-run")
_CAPABILITIES = "-all,+net_raw,+net_admin,+sys_nice,+sys_chroot"
"""The rights of `k8sdds-link`, which is a program of an image."""


def _values() -> dict[str, str]:
    """Return what the scripts contain: constants, and parts, each of which may contain those before it."""
    values = {
        "NEAR": NEAR,
        "FAR": FAR,
        "UNIT": UNIT,
        "FOLDER": FOLDER,
        "LOCK": LOCK,
        "LOCKED_S": str(LOCKED_S),
        "PROGRAMS": " ".join(PROGRAMS),
        "CAPABILITIES": _CAPABILITIES,
        "UDP_PORTS": ", ".join(map(str, UDP_PORTS)),
        "SEGMENTATION_OFF": " ".join(f"{name} off" for name in SEGMENTATION.features()),
    }
    for part in ("undo", "device_check", "interfaces", "rules", "run"):
        values[part.upper()] = shell(f"link_{part}", **values)
    return values


_VALUES = _values()

CHECK = shell("link_check", **_VALUES)
"""Fails if the node cannot emulate its link."""
RESTORE = shell("link_restore", **_VALUES)
"""Prints what is left of the emulation of a link, if there was one."""
START = shell("link_start", **_VALUES)
"""Prints the answer of `k8sdds-link`, and then the time since 1970."""
STATISTICS = shell("link_statistics", **_VALUES)
"""Prints all answers up to the statistics, in one line of JSON."""


def emulate(prologue: str, configuration: Mapping[str, Any], schedule: Sequence[tuple[int, str]]) -> str:
    """Return the script that emulates the link of a node, with a configuration of `k8sdds-link`.

    `prologue`: what `prologue` returned. `schedule`: times from the moment of `begin_outages`, in µs, and the states
    that the link has from then on.
    """
    states = "\n".join(f"{at_us / 1e6:.6f} outage * {state}" for at_us, state in schedule)
    own = {"PROLOGUE": prologue, "CONFIGURATION": json.dumps(configuration), "SCHEDULE": states}
    return shell("link_emulate", **_VALUES, **own)


def begin_outages(moment_ns: int) -> str:
    """Return the script that lets the outages of a link begin at a moment, by the time since 1970."""
    seconds, ns = divmod(moment_ns, 10**9)
    return f"cd {FOLDER} && echo {seconds}.{ns:09d} 1<>begin\n"


def prologue(
    interface: str | None,
    ssh_port: str = "",
    image: str = "",
    at_most_s: float = 0,
    peers: Sequence[str] = (),
) -> str:
    """Return the first lines of a node's scripts, which set their variables.

    `interface`: None is that of the default route. `ssh_port`: that of its SSH server. `image`: one with the program.
    `peers`: addresses of other nodes, which must be reached by the interface.
    """
    ports = ", ".join(dict.fromkeys(filter(None, (*map(str, TCP_PORTS), ssh_port))))
    variables = {
        "DEVICE": interface or "",
        "IMAGE": image,
        "TCP_PORTS": ports,
        "AT_MOST_S": f"{at_most_s:.0f}",
        "PEERS": " ".join(peers),
    }
    return (
        " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
        + "\n"
        + shell("link_device")
    )
