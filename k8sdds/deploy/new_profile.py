"""Write the text of a new profile from the addresses of its machines, and from their facts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from k8sdds import networks, versions
from k8sdds.deploy import facts, preflight, profiles
from k8sdds.deploy.facts import Facts
from k8sdds.model.profile import ADDRESS, HOST_NAME, USER, Profile, is_for_documentation
from k8sdds.system import yaml_template
from k8sdds.system.errors import InputError, PrerequisiteError
from k8sdds.system.ssh import Connections, Login, Target

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


def logins(texts: Sequence[str]) -> list[Login]:
    """Return the logins of different machines.

    Raises:
        InputError: A text is not a login, or two have the same address.
    """
    parsed = [_login(text) for text in texts]
    addresses = [login.address for login in parsed]
    for address in addresses:
        if addresses.count(address) > 1:
            raise InputError(f"--node: two machines have the address {address}", "name each machine once")
    return parsed


def _login(text: str) -> Login:
    try:
        login = Login.parse(text)
    except ValueError as error:
        raise InputError(f"--node {text}: {error}", SYNTAX) from error
    if login.user is not None and not re.fullmatch(USER, login.user):
        raise InputError(f"--node {text}: {login.user!r} is not the name of a user", SYNTAX)
    if not re.fullmatch(ADDRESS, login.address):
        raise InputError(f"--node {text}: {login.address!r} is not an address or a host name", SYNTAX)
    return login


def gather(
    machines: Sequence[Login],
    key: Path | None = None,
    ssh_config: Path | None = None,
    accept_new_host_keys: bool = False,
    concurrency: int = 20,
) -> dict[str, Facts]:
    """Gather the facts of machines over SSH, by address.

    Raises:
        InputError: An address is an example.
        PrerequisiteError: A machine cannot be reached; contains one message and remedy for each.
    """
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
    with Connections(targets, accept_new_host_keys, concurrency) as connections:
        found, failures = facts.gather(connections, extra_script=lambda address: _OWN_NAME)
    if failures:
        lines = [str(error) for error in failures.values()]
        raise PrerequisiteError(
            "\n".join(["not all machines can be reached, so no profile was written:", *lines]),
            "correct this, or write the profile without reading the machines: --no-look",
        )
    return found


def text(
    name: str,
    machines: Sequence[Login],
    found: Mapping[str, Facts],
    key: Path | None = None,
    ssh_config: Path | None = None,
) -> str:
    """Return the text of a profile.

    `found` has the facts of the machines by address; empty if they were not read.
    """
    names = _node_names(machines, found)
    control_plane = _control_plane(machines, found)
    values: dict[str, Any] = {"name": name}
    access = _access(machines, key, ssh_config)
    if access:
        values["access"] = access
    values["nodes"] = [
        _node(
            login,
            names[login.address],
            login is control_plane,
            len(machines),
            access,
            found.get(login.address),
        )
        for login in machines
    ]
    architectures = {machine.architecture for machine in found.values()}
    version = versions.LAST_ON_ARM32 if "arm" in architectures else versions.KUBERNETES
    values["kubernetes"] = {"version": version}
    unsupported = _unsupported_networks(names, found)
    suggested = networks.suggested()
    network = next((network for network in suggested if network not in unsupported), suggested[0])
    values["network"] = {"name": network}
    interfaces = {names[address]: _interface(machine, address) for address, machine in found.items()}
    if _interface_differs_from_default_route(interfaces, {names[a]: found[a] for a in found}):
        values["network"]["interface"] = next(iter(interfaces.values()))
    notes = _notes(machines, names, found, control_plane, interfaces, unsupported)
    _add_problems(notes, values, {names[address]: machine for address, machine in found.items()})
    header = "\n".join(yaml_template.comment(HEADER))
    return header + "\n\n" + yaml_template.render(profiles.schema(), values, notes)


def _node_names(machines: Sequence[Login], found: Mapping[str, Facts]) -> dict[str, str]:
    """Return a different node name for each address: the host name, or what the address says."""
    names: dict[str, str] = {}
    for index, login in enumerate(machines, 1):
        machine = found.get(login.address)
        host = machine.values.get("hostname", "") if machine else ""
        if not host and not re.fullmatch(r"[0-9.]+|.*[:%].*", login.address):
            host = login.address
        base = re.sub(r"[^a-z0-9-]+", "-", host.partition(".")[0].lower()).strip("-")[:56].rstrip("-")
        base = base if re.fullmatch(HOST_NAME, base) else f"node{index}"
        name, number = base, 2
        while name in names.values():
            name, number = f"{base}-{number}", number + 1
        names[login.address] = name
    return names


def _control_plane(machines: Sequence[Login], found: Mapping[str, Facts]) -> Login:
    """Return the machine with enough memory for the API server, preferably a PC, and then the largest."""

    def rank(login: Login) -> tuple[bool, bool, int, int]:
        machine = found.get(login.address)
        if machine is None:
            return False, False, 0, 0
        memory_kib = machine.number("memory_kib")
        return (
            memory_kib >= preflight.MIN_MEMORY_KIB[True], machine.architecture == "amd64", memory_kib,
            machine.number("cpus"),
        )  # fmt: skip

    return max(machines, key=rank)


def _access(machines: Sequence[Login], key: Path | None, ssh_config: Path | None) -> dict[str, Any]:
    """Return what all machines have in common."""
    users, ports = {login.user for login in machines}, {login.port for login in machines}
    common = {
        "user": next(iter(users)) if len(users) == 1 else None,
        "port": next(iter(ports)) if len(ports) == 1 else None,
        "key": str(key) if key else None,
        "ssh_config": str(ssh_config) if ssh_config else None,
    }
    return {name: value for name, value in common.items() if value is not None}


def _node(
    login: Login,
    name: str,
    is_control_plane: bool,
    count: int,
    access: Mapping[str, Any],
    machine: Facts | None,
) -> dict[str, Any]:
    node: dict[str, Any] = {"name": name, "address": login.address}
    for key, value in (("user", login.user), ("port", login.port)):
        if value is not None and key not in access:
            node[key] = value
    if is_control_plane:
        node["roles"] = ["control-plane", "worker"] if count <= SMALL_CLUSTER else ["control-plane"]
    if machine is not None and machine.architecture in versions.ARCHITECTURES:
        node["architecture"] = machine.architecture
    label = board(machine.values.get("model", "")) if machine else ""
    if label:
        node["labels"] = {BOARD_LABEL: label}
    return node


def board(model: str) -> str:
    """Return a label for a board: `pi4` for `Raspberry Pi 4 Model B Rev 1.4`; empty if it has no name."""
    pi = re.match(r"Raspberry Pi (?:(Compute Module|Zero) ?)?([0-9]*)", model)
    if pi:
        return {"Compute Module": "cm", "Zero": "pizero"}.get(pi[1] or "", "pi") + pi[2]
    label = re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-")
    return label[:63].rstrip("-")


def _interface(machine: Facts, address: str) -> str:
    """Return the interface with the address that SSH uses, or else that of the default route, or an empty string."""
    for line in machine.all("address"):
        link, _, own = line.partition(" ")
        if own.partition("/")[0] == address:
            return link
    return _default_interface(machine)


def _default_interface(machine: Facts) -> str:
    return machine.default_interface("ipv4") or machine.default_interface("ipv6")


def _interface_differs_from_default_route(interfaces: Mapping[str, str], found: Mapping[str, Facts]) -> bool:
    """Return whether all machines have one interface between them, which is not that of the default route."""
    names = set(interfaces.values())
    return (
        len(names) == 1
        and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,14}", next(iter(names))) is not None
        and any(_default_interface(machine) not in names for machine in found.values())
    )


def _unsupported_networks(names: Mapping[str, str], found: Mapping[str, Facts]) -> dict[str, str]:
    """Return by network why the machines do not support it."""
    unsupported = {}
    for network in networks.pod_networks():
        install = networks.find(network).cluster
        missing = [
            f"{names[address]} does not have {feature.name}"
            for feature in (install.node_features if install else ())
            for address, machine in found.items()
            if not machine.has(feature.name)
        ]
        if missing:
            unsupported[network] = ", ".join(missing)
    return unsupported


def _notes(
    machines: Sequence[Login],
    names: Mapping[str, str],
    found: Mapping[str, Facts],
    control_plane: Login,
    interfaces: Mapping[str, str],
    unsupported: Mapping[str, str],
) -> dict[yaml_template.Path, list[str]]:
    notes: dict[yaml_template.Path, list[str]] = {}
    for index, login in enumerate(machines):
        machine = found.get(login.address)
        lines = notes.setdefault(("nodes", index), [])
        if machine is None:
            continue
        described = [
            machine.values.get("model", ""),
            machine.values.get("os.PRETTY_NAME", ""),
            f"kernel {machine.values.get('kernel', '?')}",
            f"{machine.number('cpus')} CPUs",
            f"{machine.number('memory_kib') / 1024**2:.1f} GiB of memory",
            f"interface {interfaces[names[login.address]] or 'unknown'}",
        ]
        lines.append(", ".join(filter(None, described)))
        if login is control_plane and len(machines) > 1:
            lines.append("control plane: the machine with the most memory, preferably a PC")
    notes["network", "name"] = [
        f"not on these machines: {network} ({reason})" for network, reason in unsupported.items()
    ]
    notes["tuning",] = [
        "suggested for high rates and large samples: [kernel-optimizations]; with RTI Connext: [connext]"
    ]
    return notes


def _add_problems(
    notes: dict[yaml_template.Path, list[str]], values: Mapping[str, Any], found: Mapping[str, Facts]
) -> None:
    """Add what prevents a deploy of the profile to the notes of its nodes."""
    profile = Profile.model_validate(values, context={"pod_networks": networks.pod_networks()})
    for index, node in enumerate(profile.nodes):
        prefix = f"{node.name}: "
        for problem in preflight.check(profile, {node.name: found[node.name]} if node.name in found else {}):
            lines = [f"to fix: {problem.what.removeprefix(prefix)}", problem.remedy]
            notes["nodes", index] += filter(None, lines)
