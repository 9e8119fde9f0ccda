"""What a machine is and what is on it, gathered by one script in one go, as data."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from k8sdds import versions
from k8sdds.deploy.actions import LOCK
from k8sdds.deploy.facts import probe
from k8sdds.system.errors import K8sddsError
from k8sdds.system.ssh import Connections, Host, HostError

BUSY_S = 600
"""How long what an interrupted deploy began may go on."""
BUSY = 75
"""Exit code of a look at a machine on which that goes on."""

DATA = "/var/lib/etcd/member"
"""Folder of what a control plane knows."""


@dataclass(frozen=True)
class Facts:
    """One machine, as the probe saw it. Sizes in KiB, as the kernel says them."""

    values: dict[str, str]
    """Facts with one value, by key."""
    lists: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Facts with several values, by key."""
    clock_ahead_s: float = 0.0
    """How far its clock is ahead of this machine's, more or less."""
    clock_error_s: float = 0.0
    """How much more or less: half of what the probe took beyond its own time, so of connecting mostly."""

    @property
    def architecture(self) -> str:
        """amd64, arm64, arm, or what uname says of another machine."""
        machine = self.values.get("machine", "")
        return versions.ARCHITECTURE_OF_MACHINE.get(machine, machine)

    @property
    def userland(self) -> str:
        """Architecture of its programs, in Kubernetes' words; empty if dpkg does not say."""
        return {"armhf": "arm", "armel": "arm"}.get(
            self.values.get("userland", ""), self.values.get("userland", "")
        )

    def number(self, key: str) -> int:
        """A fact that is a whole number; 0 where it is missing."""
        text = self.values.get(key, "")
        return int(text) if text.isdigit() else 0

    def all(self, key: str) -> tuple[str, ...]:
        """All values of a fact."""
        return self.lists.get(key, ())

    def pairs(self, key: str) -> dict[str, str]:
        """Facts of the form `name rest` as name → rest."""
        return {name: rest for name, _, rest in (value.partition(" ") for value in self.all(key))}

    def has(self, feature: str) -> bool:
        """Whether a kernel feature was seen to work."""
        return feature in self.all("feature")


# Keys that may come several times.
SEVERAL = (
    "free_kib", "listens", "unit", "program", "leftover", "link", "address", "feature", "lacks", "resolves",
    "sysctl", "file", "image", "flag", "tuning", "kube.node", "kube.object",
)  # fmt: skip
_LINE = re.compile(r"^([A-Za-z_.]+)\t(.*)$")


def parse(text: str, sent_s: float | None = None, received_s: float | None = None) -> Facts:
    """What the probe printed as facts; with the times (seconds since 1970) between which it ran."""
    one: dict[str, str] = {}
    many: dict[str, list[str]] = defaultdict(list)
    for line in text.splitlines():
        found = _LINE.match(line)
        if found is None:
            continue
        key, value = found[1], found[2].strip()
        if key in SEVERAL:
            many[key].append(value)
        else:
            one[key] = value
    ahead = error = 0.0
    if sent_s is not None and received_s is not None and "epoch" in one:
        # Its first look at its clock came after we had sent, its last one before we had received.
        most, least = float(one["epoch"]) - sent_s, float(one.get("ended", one["epoch"])) - received_s
        ahead, error = (most + least) / 2, (most - least) / 2
    return Facts(one, {key: tuple(values) for key, values in many.items()}, ahead, error)


def gather(
    connections: Connections,
    sysctls: tuple[str, ...] = (),
    files: tuple[str, ...] = (),
    more: Callable[[str], str] = lambda name: "",
) -> tuple[dict[str, Facts], dict[str, K8sddsError]]:
    """The facts of all machines, side by side; and why there are none of the others.

    `more` gives more of the probe's script for the machine of a name.
    """

    def look(host: Host) -> Facts:
        # Its own name alone: each name that nobody answers for takes seconds.
        script = probe.script((host.name,), sysctls, files, more(host.name))
        free = f"flock --shared --nonblock {LOCK} true\n[ $? != 1 ] || exit {BUSY}\n"
        sent = time.time()
        done = host.run(free + script, timeout_s=60)
        if done.code == BUSY:
            _await_end(host)
            sent = time.time()
            done = host.run(script, timeout_s=60)
        facts = parse(done.out, sent, time.time())
        if done.code != 0 or "machine" not in facts.values:
            said = (done.err.strip().splitlines() or ["nothing was said"])[-1]
            raise HostError(host.name, f"the facts could not be gathered: {said}", "is it a Linux machine?")
        return facts

    return connections.each(look, connections.hosts)


def _await_end(host: Host) -> None:
    waited = host.run(f"flock --shared --timeout {BUSY_S} {LOCK} true", timeout_s=BUSY_S + 30)
    if waited.code == 1:
        raise HostError(
            host.name, "is still busy with what a command began that was interrupted", "again in a minute"
        )
