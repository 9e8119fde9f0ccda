"""Real SSH servers on the loopback interface, each with its own host key: they act as machines of a profile."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from k8sdds import nodes, versions
from k8sdds.deploy import api_access
from k8sdds.kubernetes.client import KubernetesClient
from k8sdds.system.files import write_atomically
from k8sdds.system.ssh import Target
from tests.clusters import run
from tests.deploy.registries import await_port
from tests.users import User, with_cluster_rights

STARTS_S = 60


@dataclass
class Server:
    """One SSH server with its own host key."""

    name: str
    folder: Path
    address: str
    port: int
    options: tuple[str, ...] = ()
    """More options of dropbear."""
    process: subprocess.Popen[bytes] | None = None

    @property
    def key(self) -> Path:
        return self.folder / f"{self.name}.key"

    def start(self) -> None:
        """Start the server and wait until it listens."""
        # The server has its own home folder for root and its own host name, in mount and UTS namespaces.
        script = 'mount --bind "$1" /root && hostname "$2" && shift 2 && exec "$@"'
        self.process = subprocess.Popen(
            [
                *("unshare", "--mount", "--uts", "sh", "-c", script, "sh"),
                *(str(self.folder / "home"), self.name),
                *("dropbear", "-F", "-E", "-s", "-r", str(self.key), "-p", f"{self.address}:{self.port}"),
                *("-P", str(self.folder / f"{self.name}.pid"), *self.options),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        await_port((self.address, self.port))

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(STARTS_S)
            self.process = None

    def new_host_key(self, kind: str = "ed25519") -> None:
        self.key.unlink(missing_ok=True)
        subprocess.run(["dropbearkey", "-t", kind, "-f", str(self.key)], check=True, capture_output=True)

    def public(self) -> str:
        """Return the line of the public host key for known_hosts."""
        output = subprocess.run(
            ["dropbearkey", "-y", "-f", str(self.key)], check=True, capture_output=True, text=True
        )
        kind, key = next(
            line for line in output.stdout.splitlines() if line.startswith(("ssh-", "ecdsa-"))
        ).split()[:2]
        return f"[{self.address}]:{self.port} {kind} {key}"


@dataclass
class Farm:
    """SSH servers, and the files that a user needs to reach them."""

    folder: Path
    servers: dict[str, Server] = field(default_factory=dict)

    @property
    def login_key(self) -> Path:
        return self.folder / "login"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    def add(self, *names: str, known: bool = True, options: tuple[str, ...] = ()) -> list[Target]:
        """Start servers of these names; `known` adds their keys to known_hosts."""
        targets = []
        for name in names:
            address = f"127.0.1.{10 + len(self.servers)}"
            with socket.socket() as free:
                free.bind((address, 0))
                port = free.getsockname()[1]
            server = Server(name, self.folder, address, port, options)
            server.new_host_key()
            server.start()
            self.servers[name] = server
            if known:
                with self.known_hosts.open("a") as file:
                    file.write(server.public() + "\n")
            targets.append(Target(name, address, "root", port, self.login_key, self.known_hosts))
        return targets

    def profile(self, text: str = "") -> str:
        """Write a profile of all servers, and return its path."""
        lines = ["name: farm", "access:", "  user: root", f"  key: {self.login_key}"]
        lines += [f"  known_hosts: {self.known_hosts}", "nodes:"]
        for index, server in enumerate(self.servers.values()):
            role = "control-plane" if index == 0 else "worker"
            lines += [
                f"  - name: {server.name}",
                f"    address: {server.address}",
                f"    port: {server.port}",
                f"    roles: [{role}]",
            ]
        path = self.folder / "farm.yaml"
        path.write_text("\n".join(lines) + "\n" + text)
        return str(path)


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Farm]:
    """Provide a farm without servers, and stop its servers after the test."""
    if shutil.which("dropbear") is None or os.geteuid() != 0:
        pytest.skip("needs dropbear and root: make test")
    made = Farm(tmp_path)
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(made.login_key)],
        check=True,
        stdin=subprocess.DEVNULL,
    )
    allowed = tmp_path / "home" / ".ssh"
    allowed.mkdir(mode=0o700, parents=True)
    (tmp_path / "home").chmod(0o700)
    (allowed / "authorized_keys").write_text((tmp_path / "login.pub").read_text())
    (allowed / "authorized_keys").chmod(0o600)
    yield made
    for server in made.servers.values():
        server.stop()


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide a state folder, which is also that of this process."""
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("K8SDDS_STATE_DIR", str(folder))
    return folder


@dataclass
class Site:
    """A profile of machines, and the command with it."""

    state: Path
    profile: Path

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        return run(self.state, *args)

    def k8sdds(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Run the command, which must succeed."""
        done = self.run(*args)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def deploy(self) -> str:
        return self.k8sdds("deploy", str(self.profile), "--yes").stdout

    def user(self, cluster: str, control_plane: str) -> User:
        """Create a user of the deployed cluster who reaches it by a kubeconfig with few rights, and no SSH."""
        kubeconfig = self.state / "clusters" / cluster / "kubeconfig"
        port = nodes.forward(cluster, control_plane, versions.API_SERVER_PORT)
        forwarded = self.profile.with_name("admin.conf")
        write_atomically(forwarded, api_access._with_server(kubeconfig.read_text(), port), mode=0o600)
        admin = KubernetesClient.from_kubeconfig(forwarded, None)
        return with_cluster_rights(admin, forwarded, "k8sdds-guest", self.profile.parent)


def profile_of(node: nodes.LocalNode, folder: Path, more: str = "", name: str = "pi") -> Path:
    """Write a profile of one local node that is reached as an ordinary machine; `more` are its other keys."""
    path = folder / f"{name}.yaml"
    access = f"access: {{ssh_config: {node.ssh_config}}}"
    path.write_text(f"name: {name}\n{access}\nnodes: [{{name: {node.name}, roles: [control-plane]}}]\n{more}")
    return path


Up = Callable[..., list[nodes.LocalNode]]


@contextmanager
def local_nodes(folder: Path) -> Iterator[Up]:
    """Provide a function that creates local nodes, given the cluster and their specifications; remove them at the end."""
    if os.geteuid() != 0:
        pytest.skip("local nodes need root: make test")
    (folder / "state").mkdir(mode=0o700)
    clusters: list[str] = []

    def create(cluster: str, *specs: nodes.NodeSpec) -> list[nodes.LocalNode]:
        clusters.append(cluster)
        return nodes.up(cluster, specs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("K8SDDS_STATE_DIR", str(folder / "state"))
        try:
            yield create
        finally:
            for cluster in clusters:
                nodes.down(cluster)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    """Return a function that creates the local nodes of a test (`local_nodes`)."""
    with local_nodes(tmp_path) as create:
        yield create
