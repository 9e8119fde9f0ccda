"""The API server of a deployed cluster, reached from this machine.

Local nodes live behind a switch that nothing leaves or enters, so an ssh client forwards a port of 127.0.0.1
to their control plane. It is started in the PID namespace of the nodes and ends with them. Real machines are
reached directly, or through such a forward for as long as it is needed.
"""

from __future__ import annotations

import base64
import contextlib
import re
import shlex
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from k8sdds import nodes, versions
from k8sdds.deploy import profiles, record
from k8sdds.kubernetes.kubectl import KUBECONFIG
from k8sdds.model.profile import Profile
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.files import write_atomically
from k8sdds.system.ssh import CONNECT_S, Host, Target

HERE = "127.0.0.1"
_SERVER = re.compile(r"^(\s*server: )https://\S+$", re.MULTILINE)


def write_kubeconfig(profile: Profile, host: Host) -> Path:
    """Write the cluster's admin kubeconfig here, so that its server can be reached; its path.

    `host` is the control plane. Raises PrerequisiteError where it has none, or cannot be reached.
    """
    path = record.folder(profile.name, make=True) / "kubeconfig"
    done = host.run(f"cat {KUBECONFIG}")
    if done.code != 0:
        raise PrerequisiteError(
            f"{host.name}: it has no admin kubeconfig", f"is the cluster up? k8sdds deploy {profile.name}"
        )
    text = done.out
    if profile.provider == "local":
        text = _SERVER.sub(rf"\g<1>https://{HERE}:{_forward_local(profile)}", text)
    if not path.exists() or path.read_text() != text:
        write_atomically(path, text, mode=0o600)
    return path


@contextlib.contextmanager
def reachable_kubeconfig(name: str) -> Iterator[Path]:
    """A kubeconfig of a deployed cluster by which its API server can be reached while the context lasts.

    Raises InputError where no such cluster was deployed from here, PrerequisiteError where it cannot be reached.
    """
    profile, path = _known(name)
    if profile.provider == "local" or _answers(path):
        yield path
        return
    # Behind a jump host, or a firewall: as ssh gets there.
    address, port = _server(path)
    target = _control_plane(profile)
    here = _free_port()
    client = _forward(target, here, f"{address}:{port}", [])
    own = path.with_name(f"kubeconfig.{here}")
    try:
        write_atomically(own, _SERVER.sub(rf"\g<1>https://{HERE}:{here}", path.read_text()), mode=0o600)
        yield own
    finally:
        own.unlink(missing_ok=True)
        client.terminate()
        client.wait(CONNECT_S)


def kubeconfig_and_tunnel(name: str) -> tuple[Path, str]:
    """The kubeconfig of a deployed cluster, for other programs; and how they get there by ssh where its API
    server cannot be reached directly, else empty. Raises InputError and PrerequisiteError as `reach`."""
    profile, path = _known(name)
    if profile.provider == "local" or _answers(path):
        return path, ""
    address, port = _server(path)
    target = _control_plane(profile)
    words = ["ssh", "-N", "-L", f"{versions.API_SERVER_PORT}:{address}:{port}", *target.options()]
    return path, (
        f"{address}:{port} cannot be reached directly from here. By ssh, in another terminal:\n"
        f"  {shlex.join([*words, target.address or target.name])}\n"
        f"then kubectl --server https://{HERE}:{versions.API_SERVER_PORT}"
    )


def _known(name: str) -> tuple[Profile, Path]:
    """A cluster's profile, and its kubeconfig, which for local nodes leads to a port that serves now."""
    profile = profiles.deployed(name)
    path = record.folder(name) / "kubeconfig"
    if not path.exists():
        raise profiles.not_deployed(name)
    if profile.provider == "local":
        new = _SERVER.sub(rf"\g<1>https://{HERE}:{_forward_local(profile)}", path.read_text())
        if new != path.read_text():
            write_atomically(path, new, mode=0o600)
    return profile, path


def _control_plane(profile: Profile) -> Target:
    (target,) = [one for one in profiles.targets(profile) if one.name == profile.control_plane.name]
    return target


def _server(kubeconfig: Path) -> tuple[str, int]:
    """Address and port of the API server that a kubeconfig names."""
    found = _SERVER.search(kubeconfig.read_text())
    url = urlsplit(found[0].split(":", 1)[1].strip() if found else "")
    return url.hostname or "", url.port or versions.API_SERVER_PORT


def _forward_local(profile: Profile) -> int:
    """The port of 127.0.0.1 that leads to the API server of local nodes; started again when it is gone."""
    name = profile.control_plane.name
    path = record.folder(profile.name, make=True) / "port"
    port = int(path.read_text()) if path.exists() else 0
    node = nodes.find(profile.name, name)
    mark = _mark(profile.name, port)
    if port and _runs(mark) and _listens(HERE, port, 3):
        return port
    if not port or _listens(HERE, port, 1):
        port = _free_port()
    target = Target(
        node.name,
        node.address,
        node.user,
        node.port,
        node.key_file,
        node.known_hosts_file,
        node.proxy_command,
    )
    # In the PID namespace of the nodes: it ends with them, whatever ends them. Network and files are ours.
    (holder,) = {word for word in nodes.exec_argv(profile.name, "switch") if word.isdigit()}
    inside = ["nsenter", "--target", holder, "--pid", "--"]
    _forward(target, port, f"{node.address}:{versions.API_SERVER_PORT}", [*inside])
    write_atomically(path, str(port), mode=0o600)
    return port


def _mark(cluster: str, port: int) -> str:
    return f"{HERE}:{port}:"


def _forward(target: Target, port: int, to: str, before: list[str]) -> subprocess.Popen[bytes]:
    host = Host(target, Path("/nonexistent"))
    words = host.ssh("-N", "-L", f"{HERE}:{port}:{to}", "-o", "ExitOnForwardFailure=yes", "-S", "none")
    client = subprocess.Popen(
        [*before, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    deadline = time.monotonic() + 2 * CONNECT_S
    while time.monotonic() < deadline:
        if _listens(HERE, port, 1):
            assert client.stderr is not None
            client.stderr.close()
            return client
        if client.poll() is not None:
            break
        time.sleep(0.02)
    client.kill()
    said = client.communicate()[1].decode(errors="replace").strip().splitlines()
    raise PrerequisiteError(
        f"{target.name}: its API server cannot be reached: {said[-1] if said else 'no answer'}",
        "is the cluster up? k8sdds status",
    )


def _answers(kubeconfig: Path) -> bool:
    """Whether the cluster's own API server answers where its kubeconfig says, and nobody in its place."""
    found = re.search(r"^\s*certificate-authority-data: (\S+)$", kubeconfig.read_text(), re.MULTILINE)
    if found is None:
        return False
    context = ssl.create_default_context(cadata=base64.b64decode(found[1]).decode())
    address, port = _server(kubeconfig)
    try:
        with (
            socket.create_connection((address, port), timeout=3) as connection,
            context.wrap_socket(connection, server_hostname=address),
        ):
            return True
    except OSError:
        return False


def _listens(address: str, port: int, patience_s: float) -> bool:
    try:
        with socket.create_connection((address, port), timeout=patience_s):
            return True
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HERE, 0))
        return int(probe.getsockname()[1])


def _runs(mark: str) -> bool:
    """Whether the forward with this mark in its arguments is a process of this machine."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if words[0] == b"ssh" and any(
                    word.decode(errors="replace").startswith(mark) for word in words
                ):
                    return True
    return False
