"""Write the text of a new profile from the addresses of its machines, and from their facts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from k8sdds import networks, versions
from k8sdds.deploy import facts, preflight, profiles
from k8sdds.deploy.facts import Facts
from k8sdds.model.profile import ADDRESS, HOST_NAME, USER, Profile, is_for_documentation
from k8sdds.system import yaml_template
from k8sdds.system.errors import InputError, PrerequisiteError
from k8sdds.system.ssh import Connect, Connections, Target

HEADER = """\
Keys that are commented out show their default: remove the # to change them. To check the machines against this
file, run: k8sdds status FILE
"""
SMALL_CLUSTER = 2
"""Number of machines up to which the control plane is also a worker: trials need pods on two nodes."""
BOARD_LABEL = "k8sdds.io/board"
SYNTAX = "write it as [USER@]ADDRESS[:PORT], with an IPv6 address in brackets: pi@[2001:db8::7]:22"

# Also resolve the host name: it becomes the name of the node, which each machine must resolve.
_OWN_NAME = 'name=$(uname -n); getent hosts "$name" >/dev/null 2>&1 && say resolves "$name"; :'


@dataclass(frozen=True)
class Login:
    """A machine as a user names it: `[USER@]ADDRESS[:PORT]`."""

    address: str
    user: str | None = None
    port: int | None = None


def logins(texts: Sequence[str]) -> list[Login]:
    """Return the logins of different machines."""
    parsed = [_login(text) for text in texts]
    addresses = [login.address for login in parsed]
    for address in addresses:
        if addresses.count(address) > 1:
            raise InputError(f"--node: two machines have the address {address}", "name each machine once")
    return parsed


def _login(text: str) -> Login:
    """Return the login that a text describes. Before a port, an IPv6 address must be in brackets."""
    pattern = r"(?s)(?:(.*)@)?(?:\[([^]]*)\]|([^:]*)|(.*:.*:.*))(?::([^:]*))?"
    user, *addresses, port = re.fullmatch(pattern, text).groups()  # type: ignore[union-attr]  # matches any text
    address = next(filter(None, addresses), "")
    is_port = port is None or (re.fullmatch("[0-9]{1,5}", port) and 1 <= int(port) <= 65535)
    mistakes = {
        "the user is missing before @": user == "",
        "the address is missing": not address,
        f"{port!r} is not a port": not is_port,
        f"{user!r} is not the name of a user": user is not None and not re.fullmatch(USER, user),
        f"{address!r} is not an address or a host name": not re.fullmatch(ADDRESS, address),
    }
    for mistake, is_made in mistakes.items():
        if is_made:
            raise InputError(f"--node {text}: {mistake}", SYNTAX)
    return Login(address, user, int(port) if port else None)


def gather(
    machines: Sequence[Login],
    key: Path | None = None,
    ssh_config: Path | None = None,
    connect: Connect = Connections,
) -> dict[str, Facts]:
    """Gather the facts of machines over SSH, by address."""
    for login in machines:
        if is_for_documentation(login.address):
            raise InputError(
                f"--node: {login.address} is an example, not the address of a machine",
                "name your machines, or write the profile without reading them: --no-look",
            )
    targets = [
        Target(login.address, login.address, login.user, login.port, key, ssh_config=ssh_config)
        for login in machines
    ]
    with connect(targets) as connections:
        found, failures = facts.gather(connections, extra_script=lambda address: _OWN_NAME)
    if failures:
        lines = [str(error) for error in failures.values()]
        raise PrerequisiteError(
            "\n".join(["not all machines can be reached, so no profile was written:", *lines]),
            "correct this, or write the profile without reading the machines: --no-look",
        )
    return found


@dataclass
class _Machine:
    """A machine of the new profile: how SSH reaches it, its name in the profile, and its facts, if they were read."""

    login: Login
    name: str
    facts: Facts | None

    @property
    def size(self) -> tuple[bool, bool, int, int]:
        """How well it fits as control plane: enough memory for the API server, preferably a PC, then the largest."""
        if self.facts is None:
            return False, False, 0, 0
        memory_kib = self.facts.number("memory_kib")
        is_pc = self.facts.architecture == "amd64"
        return memory_kib >= preflight.MIN_MEMORY_KIB[True], is_pc, memory_kib, self.facts.number("cpus")

    @property
    def default_interface(self) -> str:
        """The interface of the default route, or an empty string."""
        if self.facts is None:
            return ""
        return self.facts.default_interface("ipv4") or self.facts.default_interface("ipv6")

    @property
    def interface(self) -> str:
        """The interface with the address that SSH uses, or else that of the default route."""
        for line in self.facts.all("address") if self.facts else ():
            link, _, own = line.partition(" ")
            if own.partition("/")[0] == self.login.address:
                return link
        return self.default_interface

    def node(self, roles: Sequence[str], access: Mapping[str, Any]) -> dict[str, Any]:
        """Return its entry in the profile, without what all machines have in common."""
        node: dict[str, Any] = {"name": self.name, "address": self.login.address}
        own = {"user": self.login.user, "port": self.login.port}
        node |= {key: value for key, value in own.items() if value is not None and key not in access}
        if roles:
            node["roles"] = list(roles)
        if self.facts and self.facts.architecture in versions.ARCHITECTURES:
            node["architecture"] = self.facts.architecture
        if label := board(self.facts.values.get("model", "")) if self.facts else "":
            node["labels"] = {BOARD_LABEL: label}
        return node

    def description(self) -> str:
        """Return a description of the machine for a comment. Empty without facts."""
        if self.facts is None:
            return ""
        values = self.facts.values
        described = [
            values.get("model", ""),
            values.get("os.PRETTY_NAME", ""),
            f"kernel {values.get('kernel', '?')}",
            f"{self.facts.number('cpus')} CPUs",
            f"{self.facts.number('memory_kib') / 1024**2:.1f} GiB of memory",
            f"interface {self.interface or 'unknown'}",
        ]
        return ", ".join(filter(None, described))


def text(
    name: str,
    logins: Sequence[Login],
    found: Mapping[str, Facts],
    key: Path | None = None,
    ssh_config: Path | None = None,
) -> str:
    """Return the text of a profile. `found` has the facts of the machines by address; empty if they were not read."""
    machines = _named(logins, found)
    control_plane = max(machines, key=lambda machine: machine.size)
    access = _access(logins, key, ssh_config)
    roles = ["control-plane", "worker"] if len(machines) <= SMALL_CLUSTER else ["control-plane"]
    is_arm32 = any(machine.facts and machine.facts.architecture == "arm" for machine in machines)
    unsupported = _unsupported_networks(machines)
    suggested = networks.suggested()
    network = next((network for network in suggested if network not in unsupported), suggested[0])
    values: dict[str, Any] = {
        "name": name,
        **({"access": access} if access else {}),
        "nodes": [machine.node(roles if machine is control_plane else (), access) for machine in machines],
        "kubernetes": {"version": versions.LAST_ON_ARM32 if is_arm32 else versions.KUBERNETES},
        "network": {"name": network, **_common_interface(machines)},
    }
    notes = _notes(values, machines, control_plane)
    notes["network", "name"] = [
        f"not on these machines: {network} ({reason})" for network, reason in unsupported.items()
    ]
    header = "\n".join(yaml_template.comment(HEADER))
    return header + "\n\n" + yaml_template.render(profiles.schema(), values, notes)


def _named(logins: Sequence[Login], found: Mapping[str, Facts]) -> list[_Machine]:
    """Return the machines, each with a different name: its host name, or one made from its address."""
    machines: dict[str, _Machine] = {}
    for index, login in enumerate(logins, 1):
        facts = found.get(login.address)
        host = facts.values.get("hostname", "") if facts else ""
        if not host and not re.fullmatch(r"[0-9.]+|.*[:%].*", login.address):
            host = login.address
        base = re.sub(r"[^a-z0-9-]+", "-", host.partition(".")[0].lower()).strip("-")[:56].rstrip("-")
        base = base if re.fullmatch(HOST_NAME, base) else f"node{index}"
        name, number = base, 2
        while name in machines:
            name, number = f"{base}-{number}", number + 1
        machines[name] = _Machine(login, name, facts)
    return list(machines.values())


def _access(logins: Sequence[Login], key: Path | None, ssh_config: Path | None) -> dict[str, Any]:
    """Return the settings that all machines have in common."""
    users, ports = {login.user for login in logins}, {login.port for login in logins}
    common = {
        "user": next(iter(users)) if len(users) == 1 else None,
        "port": next(iter(ports)) if len(ports) == 1 else None,
        "key": str(key) if key else None,
        "ssh_config": str(ssh_config) if ssh_config else None,
    }
    return {name: value for name, value in common.items() if value is not None}


def board(model: str) -> str:
    """Return a label for a board: `pi4` for `Raspberry Pi 4 Model B Rev 1.4`; empty if it has no name."""
    pi = re.match(r"Raspberry Pi (?:(Compute Module|Zero) ?)?([0-9]*)", model)
    if pi:
        return {"Compute Module": "cm", "Zero": "pizero"}.get(pi[1] or "", "pi") + pi[2]
    label = re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-")
    return label[:63].rstrip("-")


def _common_interface(machines: Sequence[_Machine]) -> dict[str, str]:
    """Return the setting for one interface between all machines that is not that of the default route, or nothing."""
    read = [machine for machine in machines if machine.facts]
    names = {machine.interface for machine in read}
    if len(names) != 1 or all(machine.default_interface in names for machine in read):
        return {}
    (name,) = names
    return {"interface": name} if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,14}", name) else {}


def _unsupported_networks(machines: Sequence[_Machine]) -> dict[str, str]:
    """Return by network why the machines do not support it."""
    unsupported = {}
    for network in networks.pod_networks():
        install = networks.find(network).cluster
        missing = [
            f"{machine.name} does not have {feature.name}"
            for feature in (install.node_features if install else ())
            for machine in machines
            if machine.facts and not machine.facts.has(feature.name)
        ]
        if missing:
            unsupported[network] = ", ".join(missing)
    return unsupported


def _notes(
    values: Mapping[str, Any], machines: Sequence[_Machine], control_plane: _Machine
) -> dict[yaml_template.Path, list[str]]:
    """Return comments: what the machines are, and what prevents a deploy of the profile on them."""
    profile = Profile.model_validate(values, context={"pod_networks": networks.pod_networks()})
    notes: dict[yaml_template.Path, list[str]] = {}
    for index, machine in enumerate(machines):
        lines = notes["nodes", index] = []
        if machine.facts is None:
            continue
        lines.append(machine.description())
        if machine is control_plane and len(machines) > 1:
            lines.append("control plane: the machine with the most memory, preferably a PC")
        for problem in preflight.check(profile, {machine.name: machine.facts}):
            what = problem.what.removeprefix(f"{machine.name}: ")
            lines += filter(None, (f"to fix: {what}", problem.remedy))
    notes["tuning",] = [
        "suggested for high rates and large samples: [kernel-optimizations]; with RTI Connext: [connext]"
    ]
    return notes
