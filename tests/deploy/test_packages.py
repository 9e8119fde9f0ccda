"""Kubernetes from packages on a local node: from a repository that the test creates, and without a repository."""

from __future__ import annotations

import gzip
import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from k8sdds import bundle, nodes
from k8sdds.bundle.contents import HOST_ARCH
from k8sdds.deploy import deploy as flow
from k8sdds.deploy import destroy, profiles
from k8sdds.deploy.actions import Action
from k8sdds.deploy.phases import kubernetes
from k8sdds.deploy.phases.phase import CLAIM, KUBERNETES
from k8sdds.deploy.runner import ActionFailed, Runner
from k8sdds.model.profile import Profile
from k8sdds.system.ssh import Connections
from tests.deploy.conftest import Up, profile_of

pytestmark = pytest.mark.long
CLUSTER = "pkgs"
SWITCH, PORT = "10.88.0.1", 8080
VERSION = "1.36.3"
NEWER = "1.36.9"
"""Newer version in the repository, which must not be installed."""


class Quiet:
    """Ignore the progress."""

    def started(self, action: Action) -> None: ...

    def ended(self, action: Action, seconds: float, error: Exception | None) -> None: ...


def package(folder: Path, name: str, version: str, program: Path | None) -> str:
    """Build a package and return its index entry.

    The kubelet's package contains the program, which includes all components; other packages link to it.
    """
    tree = folder / "tree"
    for part in ("DEBIAN", "usr/bin", "lib/systemd/system"):
        (tree / part).mkdir(parents=True)
    if name == "kubelet":
        (tree / "lib/systemd/system/kubelet.service").write_text(kubernetes.UNIT)
    if program and name == "kubelet":
        os.link(program, tree / "usr/bin/kubelet")
    else:
        (tree / "usr/bin" / name).symlink_to("kubelet")
    control = (
        f"Package: {name}\nVersion: {version}-1.1\nArchitecture: {HOST_ARCH}\nMaintainer: nobody <nobody@localhost>\n"
        "Description: test package\n"
    )
    (tree / "DEBIAN/control").write_text(control)
    path = folder / f"{name}_{version}.deb"
    subprocess.run(
        ["dpkg-deb", "-Znone", "--root-owner-group", "-b", tree, path], check=True, capture_output=True
    )
    subprocess.run(["rm", "-r", tree], check=True)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return f"{control}Filename: ./{path.name}\nSize: {path.stat().st_size}\nSHA256: {digest}\n\n"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a signed repository with its key, laid out like that of the Kubernetes project."""
    top = tmp_path_factory.mktemp("repository")
    folder = top / "v1.36"
    folder.mkdir()
    opened = bundle.cached_bundle((HOST_ARCH,))
    (program,) = [opened.file(item) for item in opened.binaries(HOST_ARCH) if item.name == "kubernetes"]
    copy = top / "kubernetes"
    copy.write_bytes(program.read_bytes())
    copy.chmod(0o755)
    index = ""
    for name in kubernetes.PROGRAMS:
        index += package(folder, name, VERSION, copy) + package(folder, name, NEWER, None)
    (folder / "Packages").write_text(index)
    (folder / "Packages.gz").write_bytes(gzip.compress(index.encode()))
    lines = "".join(
        f" {hashlib.sha256((folder / name).read_bytes()).hexdigest()} {(folder / name).stat().st_size} {name}\n"
        for name in ("Packages", "Packages.gz")
    )
    at = time.strftime("%a, %d %b %Y %H:%M:%S UTC", time.gmtime())
    (folder / "Release").write_text(f"Origin: test\nDate: {at}\nSHA256:\n{lines}")
    home = top / "gpg"
    home.mkdir(mode=0o700)
    gpg = ["gpg", "--homedir", home, "--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", ""]
    try:
        subprocess.run([*gpg, "--quick-gen-key", "test", "ed25519", "sign"], check=True, capture_output=True)
        subprocess.run(
            [*gpg, "--clearsign", "--output", folder / "InRelease", folder / "Release"],
            check=True,
            capture_output=True,
        )
        key = subprocess.run([*gpg, "--armor", "--export"], check=True, capture_output=True).stdout
        (folder / "Release.key").write_bytes(key)
    finally:
        subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=False)
    return top


@pytest.fixture
def profile(up: Up, tmp_path: Path) -> Profile:
    """Provide a profile of one local node that is reached as an ordinary machine."""
    (created,) = up(CLUSTER, nodes.NodeSpec("one"))
    more = f"kubernetes: {{version: {VERSION}}}\nsoftware: packages\n"
    return profiles.load(str(profile_of(created, tmp_path, more, "pkgs")))


def planned(profile: Profile, connections: Connections) -> list[Action]:
    """Return the actions of a plan that concern packages."""
    survey = flow.survey(profile, connections)
    survey.raise_problems(profile)
    actions = flow.plan_within(flow.desired_state(profile, survey.facts, None, lambda line: None))
    return [action for action in actions if action.phase in (CLAIM, KUBERNETES)]


def inside(*args: str) -> str:
    return nodes.run(CLUSTER, "one", args)


def test_kubernetes_is_installed_from_a_package_repository(
    profile: Profile, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = inside("dpkg-query", "-Wf", "${Package}\n")
    with Connections(profiles.targets(profile)) as connections:
        # Local nodes cannot reach the project's repository.
        with pytest.raises(ActionFailed) as error:
            Runner(connections, tmp_path / "logs", Quiet()).apply(planned(profile, connections))
        message = str(error.value)
        host = kubernetes.REPOSITORY.split("/")[2]
        assert "one: kubernetes packages: could not install Kubernetes 1.36.3" in message
        assert (
            "Failed to fetch" in message
            and f"the machine must reach {host}" in message
            and "bundle" in message
        )
        assert inside("dpkg-query", "-Wf", "${Package}\n") == installed

        monkeypatch.setattr(kubernetes, "REPOSITORY", f"http://{SWITCH}:{PORT}/v1.{{minor}}/")
        command = [
            *nodes.exec_argv(CLUSTER, "switch"),
            sys.executable,
            "-m",
            "http.server",
            "--bind",
            SWITCH,
            str(PORT),
        ]
        with subprocess.Popen(
            [*command, "--directory", str(repository)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as server:
            try:
                Runner(connections, tmp_path / "logs", Quiet()).apply(planned(profile, connections))
            finally:
                server.terminate()
        assert inside("apt-mark", "showhold").split() == ["kubeadm", "kubectl", "kubelet"]
        assert inside("kubeadm", "version", "-o", "short").strip() == f"v{VERSION}"
        assert planned(profile, connections) == []

        purge = destroy.plan(profile, flow.survey(profile, connections), purge=True)
        Runner(connections, tmp_path / "logs", Quiet()).apply(purge)
    assert inside("dpkg-query", "-Wf", "${Package}\n") == installed
    assert inside("sh", "-c", "ls -A /etc/apt/sources.list.d /etc/apt/keyrings; ls -d /etc/k8sdds || :").split() == [
        "/etc/apt/keyrings:", "/etc/apt/sources.list.d:",
    ]  # fmt: skip
