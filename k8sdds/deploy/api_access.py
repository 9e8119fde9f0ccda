"""Reach the API server of a deployed cluster from this machine.

Local nodes are on a network of their own, so a port of 127.0.0.1 is forwarded to their control plane until they
stop. Other machines are reached directly, or through a port that is forwarded over SSH while it is needed.
"""

from __future__ import annotations

import base64
import contextlib
import re
import shlex
import socket
import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from k8sdds import nodes, versions
from k8sdds.deploy import profiles, record
from k8sdds.deploy.actions import KUBECONFIG
from k8sdds.model.profile import Profile
from k8sdds.model.trial import host_and_port
from k8sdds.system.errors import K8sddsError, PrerequisiteError
from k8sdds.system.files import write_atomically
from k8sdds.system.ssh import Connections, Host, Target

if TYPE_CHECKING:
    from k8sdds.kubernetes.client import KubernetesClient

LOOPBACK = "127.0.0.1"
_SERVER = re.compile(r"^(\s*server: )https://\S+$", re.MULTILINE)


# -- through the control plane ---------------------------------------------------------------------------------


def is_control_plane(host: Host) -> bool:
    """Return whether a machine is a control plane already."""
    # Only the output shows that the script ran: sudo fails with the same exit codes as `test`.
    return host.run(f"[ -e {KUBECONFIG} ] || echo missing").out.strip() != "missing"


@contextlib.contextmanager
def administrator(control_plane: Host) -> Iterator[KubernetesClient]:
    """Provide a client with the rights of the cluster's administrator.

    It reaches the API server through the SSH connection, because the API server may listen only for its nodes; or
    directly, if the SSH server of the machine does not forward connections.
    """
    from k8sdds.kubernetes import kubeconfig
    from k8sdds.kubernetes.client import KubernetesClient

    text = _admin_kubeconfig(control_plane)
    with control_plane.forward(*_server(text)) as port:
        forwarded = _with_server(text, port)
        is_direct = not _answers(forwarded) and _answers(text)
        client = KubernetesClient(kubeconfig.from_text(text if is_direct else forwarded, control_plane.name))
        client.kubectl = f"on {control_plane.name}, kubectl --kubeconfig {KUBECONFIG}"
        yield client


def _admin_kubeconfig(control_plane: Host) -> str:
    done = control_plane.run(f"cat {KUBECONFIG}")
    if done.code:
        raise PrerequisiteError(
            f"{control_plane.name}: cannot read {KUBECONFIG}: {done.err.strip()}",
            "finish the cluster: k8sdds deploy PROFILE",
        )
    return done.out


# -- with the kubeconfig on this machine -----------------------------------------------------------------------


def write_kubeconfig(profile: Profile, control_plane: Host) -> None:
    """Write the cluster's admin kubeconfig on this machine, with a server address that this machine can reach."""
    text = _admin_kubeconfig(control_plane)
    if profile.provider == "local":
        text = _with_server(text, _local_forward(profile))
    path = record.folder(profile.name, create=True) / "kubeconfig"
    if not path.exists() or path.read_text() != text:
        write_atomically(path, text, mode=0o600)


@contextlib.contextmanager
def client(name: str) -> Iterator[KubernetesClient]:
    """Provide a client of a deployed cluster's API server, directly or as `administrator` does."""
    from k8sdds.kubernetes.client import KubernetesClient

    path, target = _reached(name)
    if target is None:
        direct = KubernetesClient.from_kubeconfig(path, None)
        direct.restore_connection = partial(_restore, name)
        yield direct
        return
    with Connections([target]) as connections, administrator(connections.hosts[target.name]) as forwarded:
        yield forwarded


def _restore(name: str) -> str | None:
    """Start the port forward to the API server of local nodes again if it ended, and return its URL."""
    # Another error than the one that the caller reports would hide it.
    with contextlib.suppress(K8sddsError, OSError):
        profile, path = _profile_and_kubeconfig(name)
        if profile.provider == "local":
            return "https://{}:{}".format(*_server(path.read_text()))
    return None


def kubeconfig_and_tunnel(name: str) -> tuple[Path, str]:
    """Return the kubeconfig of a cluster, and the command for an SSH tunnel; "" if the API server needs none."""
    path, target = _reached(name)
    if target is None:
        return path, ""
    server = host_and_port(*_server(path.read_text()))
    tunnel = ["ssh", "-N", "-L", f"{versions.API_SERVER_PORT}:{server}", *target.options(), target.alias]
    return path, (
        f"{server} cannot be reached directly from this machine. Open a tunnel in another terminal:\n"
        f"  {shlex.join(tunnel)}\n"
        f"then run: kubectl --server https://{LOOPBACK}:{versions.API_SERVER_PORT}"
    )


def _profile_and_kubeconfig(name: str) -> tuple[Profile, Path]:
    """Return a cluster's profile and the path of its kubeconfig.

    For local nodes, start the port forward if it does not run, and write its port to the kubeconfig.
    """
    profile = profiles.deployed(name)
    path = record.folder(name) / "kubeconfig"
    if not path.exists():
        raise profiles.not_deployed(name)
    if profile.provider == "local":
        new = _with_server(path.read_text(), _local_forward(profile))
        if new != path.read_text():
            write_atomically(path, new, mode=0o600)
    return profile, path


def _reached(name: str) -> tuple[Path, Target | None]:
    """Return a cluster's kubeconfig, and the control plane if the API server is behind a jump host or a firewall."""
    profile, path = _profile_and_kubeconfig(name)
    if profile.provider == "local" or _answers(path.read_text()):
        return path, None
    (target,) = profiles.targets(profile, [profile.control_plane.name])
    return path, target


def _local_forward(profile: Profile) -> int:
    """Return the local port that leads to the API server of local nodes. Starts the forward if it ended."""
    path = record.folder(profile.name, create=True) / "port"
    text = path.read_text() if path.exists() else ""
    known = int(text) if text.isdecimal() else 0
    port = nodes.forward(profile.name, profile.control_plane.name, versions.API_SERVER_PORT, known)
    if port != known:
        write_atomically(path, str(port), mode=0o600)
    return port


# -- the text of a kubeconfig ----------------------------------------------------------------------------------


def _with_server(text: str, port: int) -> str:
    """Return a kubeconfig whose server is a port of this machine."""
    return _SERVER.sub(rf"\g<1>https://{LOOPBACK}:{port}", text)


def _server(text: str) -> tuple[str, int]:
    """Return address and port of the API server that a kubeconfig names."""
    line = _SERVER.search(text)
    url = urlsplit(line[0].split(":", 1)[1].strip() if line else "")
    return url.hostname or "", url.port or versions.API_SERVER_PORT


def _answers(text: str) -> bool:
    """Return whether the API server of a kubeconfig answers, with a certificate of the cluster's own authority."""
    certificate = re.search(r"^\s*certificate-authority-data: (\S+)$", text, re.MULTILINE)
    if certificate is None:
        return False
    try:
        context = ssl.create_default_context(cadata=base64.b64decode(certificate[1]).decode())
        address, port = _server(text)
        with (
            socket.create_connection((address, port), timeout=3) as connection,
            context.wrap_socket(connection, server_hostname=address),
        ):
            return True
    except (OSError, ValueError):  # it is not reachable, or the kubeconfig is damaged
        return False
