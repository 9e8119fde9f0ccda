"""How a cluster's machines are reached: keys, known_hosts, ssh_config, and the data that says so."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

from k8sdds import versions
from k8sdds.nodes import switch
from k8sdds.nodes.record import Record
from k8sdds.nodes.spec import LocalNode
from k8sdds.system.errors import PrerequisiteError


def keygen(path: Path) -> None:
    """Have a key pair, both halves of it."""
    public = path.with_name(f"{path.name}.pub")
    if path.exists() and public.exists():
        return
    path.unlink(missing_ok=True)
    public.unlink(missing_ok=True)
    if not shutil.which("ssh-keygen"):
        raise PrerequisiteError("ssh-keygen is not installed", "sudo apt-get install openssh-client")
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "k8sdds", "-f", str(path)], check=True
    )


def write_files(known: Record) -> None:
    """Host keys, known_hosts, ssh_config and hosts of all machines."""
    authorized = (known.folder / "key.pub").read_text()
    names = "".join(f"{machine.address} {name}\n" for name, machine in known.machines.items())
    hosts_keys = []
    for name, machine in known.machines.items():
        folder = Path(known.data) / name
        folder.mkdir(parents=True, exist_ok=True)
        keygen(folder / "host_key")
        (folder / "authorized_keys").write_text(authorized)
        (folder / "hosts").write_text(f"127.0.0.1 localhost\n::1 localhost\n{names}")
        kind, key, _ = (folder / "host_key.pub").read_text().split(" ", 2)
        hosts_keys.append(f"{name},{machine.address} {kind} {key}\n")
    (known.folder / "known_hosts").write_text("".join(hosts_keys))
    blocks = "\n".join(node(known, name).ssh_block() for name in known.machines)
    (known.folder / "ssh_config").write_text(blocks)


def node(known: Record, name: str) -> LocalNode:
    """A machine as others see it."""
    machine = known.machines[name]
    return LocalNode(
        cluster=known.cluster,
        name=name,
        address=machine.address,
        port=versions.SSH_PORT,
        user=machine.spec.user,
        arch=versions.ARCHITECTURE_OF_MACHINE.get(platform.machine(), platform.machine()),
        state=("running" if machine.answered else "boots") if machine.alive else "stopped",
        key_file=known.folder / "key",
        known_hosts_file=known.folder / "known_hosts",
        ssh_config=known.folder / "ssh_config",
        proxy_command=tuple(switch.proxy(known, machine.address, versions.SSH_PORT)),
    )
