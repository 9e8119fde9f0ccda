"""Multicast, where a probe shows that it works: pods ask a group, and all the others must answer.

What a network promises is in its module; what a cluster keeps of it is tried with `k8sdds-probe`, which
every image of ours for pods has.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

PROBE = "/usr/local/bin/k8sdds-probe"
GROUP = "239.255.0.1"
"""DDS's own group: what is filtered there is filtered for discovery."""
PORT = 7399
"""Below the ports of DDS's domains."""
ANSWERS = 3
"""Asked of each listener, since a datagram may be lost."""


def listen() -> list[str]:
    """What the asked pods run, in the background, until it is ended."""
    return [PROBE, "listen", "--udp", str(PORT), "--group", GROUP]


def ask(listeners: int, timeout_s: float = 5) -> list[str]:
    """What the asking pod runs."""
    wanted = str(ANSWERS * listeners)
    return [PROBE, "ask", f"{GROUP}:{PORT}", "--count", wanted, "--timeout", f"{timeout_s:g}"]


@dataclass(frozen=True)
class Verdict:
    """Whether the group reaches all that listen."""

    works: bool
    missing: tuple[str, ...]
    """Addresses that did not answer."""


def verdict(stdout: str, listeners: Sequence[str]) -> Verdict:
    """What the probe's output says of the pods with these addresses; none answered where it is no output.

    Its exit code says nothing here: one listener that answers for two would do.
    """
    try:
        answered = {source.rpartition(":")[0] for source in json.loads(stdout)["from"]}
    except (ValueError, KeyError, TypeError, AttributeError):
        answered = set()
    missing = tuple(address for address in listeners if address not in answered)
    return Verdict(not missing, missing)
