"""Write what SSH needs to reach a cluster's nodes: keys, known_hosts and ssh_config."""

from __future__ import annotations

import platform
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from k8sdds import versions
from k8sdds.nodes import switch
from k8sdds.nodes.records import ClusterRecord
from k8sdds.nodes.spec import USER, LocalNode
from k8sdds.system.files import write_atomically


def keygen(path: Path) -> None:
    """Create a key pair, unless both of its files exist."""
    public = path.with_name(f"{path.name}.pub")
    if path.exists() and public.exists():
        return
    key = Ed25519PrivateKey.generate()
    encoding, private = serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH
    content = key.private_bytes(encoding, private, serialization.NoEncryption())
    write_atomically(path, content.decode(), mode=0o600)
    text = serialization.ssh.serialize_ssh_public_key(key.public_key()).decode()
    write_atomically(public, f"{text} k8sdds\n", mode=0o644)


def write_files(record: ClusterRecord) -> None:
    """Write the host keys, known_hosts, ssh_config and hosts files of all nodes."""
    authorized = (record.folder / "key.pub").read_text()
    names = "".join(
        f"{address} {name}\n"
        for name, machine in record.machines.items()
        for address in switch.addresses(machine)
    )
    host_keys = []
    for name, machine in record.machines.items():
        folder = Path(record.data) / name
        folder.mkdir(parents=True, exist_ok=True)
        keygen(folder / "host_key")
        (folder / "authorized_keys").write_text(authorized)
        (folder / "hosts").write_text(f"127.0.0.1 localhost\n::1 localhost\n{names}")
        kind, key, _ = (folder / "host_key.pub").read_text().split(" ", 2)
        host_keys.append(f"{name},{machine.address} {kind} {key}\n")
    (record.folder / "known_hosts").write_text("".join(host_keys))
    blocks = "\n".join(node(record, name).ssh_block() for name in record.machines)
    (record.folder / "ssh_config").write_text(blocks)


def node(record: ClusterRecord, name: str) -> LocalNode:
    """Return a node with everything that is needed to reach it."""
    machine = record.machines[name]
    return LocalNode(
        cluster=record.cluster,
        name=name,
        address=machine.address,
        port=versions.SSH_PORT,
        user=USER,
        arch=versions.ARCHITECTURE_OF_MACHINE.get(platform.machine(), platform.machine()),
        state=("running" if machine.answered else "boots") if machine.alive else "stopped",
        key_file=record.folder / "key",
        known_hosts_file=record.folder / "known_hosts",
        ssh_config=record.folder / "ssh_config",
        proxy_command=tuple(switch.proxy(record, machine.address, versions.SSH_PORT)),
        shares=machine.spec.shares,
    )
