"""Registry mirrors and proxies on a local node with a real registry, which requires TLS and a login."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from k8sdds import nodes
from k8sdds.bundle import oci
from k8sdds.bundle.contents import HOST_ARCH
from k8sdds.deploy import deploy as flow
from k8sdds.deploy import network_install, profiles
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.phases.machine import REGISTRIES, runtime
from k8sdds.deploy.phases.phase import Plan
from k8sdds.deploy.phases.proxy import proxy
from k8sdds.deploy.phases.registry import HOSTS_FILE
from k8sdds.deploy.phases.registry import registry as mirrors
from k8sdds.deploy.runner import ActionFailed, Runner
from k8sdds.system.ssh import Connections
from tests.deploy import registries
from tests.deploy.conftest import local_nodes, profile_of

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("docker-registry"),
    reason="needs root and docker-registry: make test",
)
CLUSTER = "mirrored"
LOGIN = "puller:correct-horse-battery"
IMAGE = "lab/tiny:1"
TLS = ", tls: {certificate: /registry/server.crt, key: /registry/server.key}"
AUTH = "auth: {htpasswd: {realm: lab, path: /registry/htpasswd}}\n"
START = """
echo 127.0.0.1 registry.lab >>/etc/hosts
systemd-run --unit registry /registry/docker-registry serve /registry/config.yml
for try in $(seq 300); do ss -Htln | grep -q :5000 && exit 0; sleep 0.2; done
journalctl -u registry | tail -n 5 >&2; exit 1
"""


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the registry's program, settings, certificate, users and one image."""
    folder = tmp_path_factory.mktemp("registry")
    folder.chmod(0o755)
    shutil.copy("/usr/bin/docker-registry", folder)
    registries.certificate(folder, "registry.lab")
    registries.htpasswd(folder / "htpasswd", LOGIN)
    _push(folder)
    (folder / "config.yml").write_text(registries.settings("/registry", ":5000", TLS) + AUTH)
    return folder


def _push(folder: Path) -> None:
    """Store an image of one file in the registry's folder, through a registry without TLS and users."""
    layout = oci.Layout(folder / "layout")
    digest = layout.image(IMAGE, HOST_ARCH, ["/tiny"], [layout.layer({"/tiny": b""})])
    oci.archive(layout.folder, [(IMAGE, HOST_ARCH, digest)], folder / "image.tar")
    with registries.running(folder) as address:
        target = f"docker://{address}/{IMAGE}"
        copy = ["skopeo", "copy", "-q", "--dest-tls-verify=false", f"oci-archive:{folder}/image.tar", target]
        subprocess.run(copy, check=True, capture_output=True)


@pytest.fixture(scope="module")
def node(registry: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[nodes.LocalNode]:
    """Provide a node on which the registry runs as registry.lab:5000."""
    shared = nodes.SharedFolder(registry, "/registry")
    with local_nodes(tmp_path_factory.mktemp("node")) as up:
        (created,) = up(CLUSTER, nodes.NodeSpec("pi1", shares=(shared,)))
        nodes.run(CLUSTER, "pi1", ["sh", "-e"], stdin=START)
        yield created


class Machine:
    """The node as a machine of a profile, on which single phases of a deploy run."""

    def __init__(self, node: nodes.LocalNode, folder: Path) -> None:
        self._node, self._folder = node, folder
        self.logs = folder / "logs"

    def apply(self, keys: str, *phases: Plan) -> list[str]:
        """Apply the actions that phases plan for a profile with these keys, and return their titles."""
        profile = profiles.load(str(profile_of(self._node, self._folder, keys)))
        titles = []
        with Connections(profiles.targets(profile)) as connections:
            for phase in phases:
                facts = flow.survey(profile, connections).facts
                network, login = network_install.render(profile), profiles.registry_login(profile)
                state = DesiredState(profile, facts, None, network, login)  # type: ignore[arg-type]
                actions = phase(state, profile.nodes[0])
                runner = Runner(connections, self.logs, None)  # type: ignore[arg-type]
                for action in actions:
                    runner.run(action)
                titles += [action.title for action in actions]
        return titles


def on_node(*argv: str) -> str:
    return nodes.run(CLUSTER, "pi1", list(argv))


def test_images_are_pulled_through_a_mirror_with_certificate_and_login(
    registry: Path, node: nodes.LocalNode, tmp_path: Path
) -> None:
    machine = Machine(node, tmp_path)
    login = tmp_path / "login"
    login.touch(0o600)
    keys = (
        f"registry: {{mirrors: ['https://registry.lab:5000'], ca_file: {registry / 'server.crt'},"
        f" login_file: {login}}}\n"
    )
    login.write_text("puller:wrong")
    with pytest.raises(ActionFailed, match=r"registry\.lab:5000 rejects the login"):
        machine.apply(keys, runtime, mirrors)
    with pytest.raises(ActionFailed, match=r"certificate of the registry registry\.lab:5000 is not trusted"):
        machine.apply("registry: {mirrors: ['https://registry.lab:5000']}\n", mirrors)
    with pytest.raises(ActionFailed, match=r"registry\.lab:5001 cannot be used"):
        machine.apply("registry: {mirrors: ['https://registry.lab:5001']}\n", mirrors)
    assert not on_node("sh", "-c", f"ls {HOSTS_FILE} /run/k8sdds-deploy /run/tmp.* 2>/dev/null || :")

    login.write_text(LOGIN)
    assert machine.apply(keys, runtime, mirrors) == ["pull images through https://registry.lab:5000"]
    assert machine.apply(keys, runtime, mirrors) == []
    # The registry of the image does not exist: the mirror has it.
    pull = ("ctr", "images", "pull", "--hosts-dir", REGISTRIES, f"registry.example/{IMAGE}")
    assert "done" in on_node(*pull)
    assert REGISTRIES in on_node("sh", "-c", "containerd config dump | grep config_path")
    assert on_node("stat", "-c", "%a %U", HOSTS_FILE).split() == ["600", "root"]
    logged = "".join(path.read_text() for path in machine.logs.iterdir())
    assert "correct-horse" not in logged and "wrong" not in logged and "Basic" not in logged

    assert machine.apply("", mirrors) == ["use no mirror"]
    assert not on_node("sh", "-c", f"ls {HOSTS_FILE} 2>/dev/null || :")


def test_containerd_uses_the_proxy(node: nodes.LocalNode, tmp_path: Path) -> None:
    machine = Machine(node, tmp_path)
    keys = "proxy: {https: 'http://127.0.0.1:9', no_proxy: [registry.lab]}\n"
    assert machine.apply(keys, proxy) == ["use the proxy http://127.0.0.1:9"]
    assert machine.apply(keys, proxy) == []
    environment = on_node("sh", "-c", "tr '\\0' '\\n' </proc/$(pidof -s containerd)/environ")
    assert "HTTPS_PROXY=http://127.0.0.1:9" in environment
    assert ",10.244.0.0/16,10.96.0.0/12,10." in environment and ",registry.lab" in environment
    assert "127.0.0.1:9" in on_node("apt-config", "dump", "Acquire::https::Proxy")
    assert machine.apply("", proxy) == ["use no proxy"]
    assert "PROXY" not in on_node("sh", "-c", "tr '\\0' '\\n' </proc/$(pidof -s containerd)/environ")
