"""Install the programs and images of Kubernetes on every node, from the bundle or from packages."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from k8sdds.bundle import Item
from k8sdds.deploy import bundled_networks
from k8sdds.deploy.actions import Action, file_script
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.phases.machine import recording_packages
from k8sdds.deploy.phases.phase import IMAGES, KUBERNETES, files_script, stale
from k8sdds.deploy.scripts import shell, text
from k8sdds.model.profile import Node

UNIT_FILE = "/etc/systemd/system/kubelet.service"
DROP_IN_FILE = "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf"
FILES = (UNIT_FILE, DROP_IN_FILE)
REPOSITORY = "https://pkgs.k8s.io/core:/stable:/v1.{minor}/deb/"
"""Package repository of the Kubernetes project."""
SOURCE_FILE = "/etc/apt/sources.list.d/k8sdds-kubernetes.list"
KEY_FILE = "/etc/apt/keyrings/k8sdds-kubernetes.asc"
PROGRAMS = ("kubeadm", "kubelet", "kubectl")

UNIT = text("kubelet.service")
DROP_IN = text("10-kubeadm.conf")
"""Names the files that kubeadm writes for the kubelet."""


def kubernetes(state: DesiredState, node: Node) -> list[Action]:
    """Install kubeadm, kubelet and kubectl, and import the images that a node needs before it joins."""
    install = _from_bundle if state.software.from_bundle else _from_packages
    images = state.software.images(
        state.facts[node.name].architecture, node.is_control_plane, state.network.images
    )
    return install(state, node) + _import(
        state, node, KUBERNETES, images, "import {count} images of Kubernetes and its network"
    )


def images(state: DesiredState, node: Node) -> list[Action]:
    """Import the images of k8sdds, which no registry provides, and those of the networks that the profile names."""
    others: set[str] = set()
    if state.software.from_bundle:
        # With them, no network switch has to wait for an import.
        named = bundled_networks.required(state.profile)
        others = {image for network in named for image in network.images} - {*state.network.images}
    own = state.software.own_images(state.facts[node.name].architecture, others)
    return _import(state, node, IMAGES, own, "import {names}")


def _from_bundle(state: DesiredState, node: Node) -> list[Action]:
    architecture = state.facts[node.name].architecture
    uploads = tuple(
        upload
        for upload in state.software.binaries(architecture)
        if state.file_sha256(node.name, upload.target) != upload.sha256
    )
    changed = stale(state, node, {UNIT_FILE: UNIT, DROP_IN_FILE: DROP_IN})
    # Official builds are files where built programs have links: both must be checked after a change of source.
    existing = state.facts[node.name].pairs("symlink")
    wanted = state.software.links(architecture).items()
    links = {path: target for path, target in wanted if existing.get(path) != target}
    if not uploads and not changed and not links:
        return []
    script = files_script(changed)
    for path, target in links.items():
        script += f"keep {shlex.quote(path)}; ln -sfn {shlex.quote(target)} {shlex.quote(path)}\n"
    script += "systemctl daemon-reload\nsystemctl enable kubelet >/dev/null 2>&1\n"
    if state.is_joined(node.name):
        script += "systemctl restart kubelet\n"
    title = f"install Kubernetes {state.software.bundle.kubernetes} from the bundle"
    return [Action(node.name, KUBERNETES, title, script, uploads, timeout_s=900)]


def _from_packages(state: DesiredState, node: Node) -> list[Action]:
    version, current = state.profile.kubernetes.version, state.facts[node.name].pairs("program")
    if all(current.get(program) == f"v{version}" for program in PROGRAMS):
        return []
    source = REPOSITORY.format(minor=state.profile.kubernetes.minor)
    packages = " ".join(f"{program}='{version}-*'" for program in PROGRAMS)
    install = shell(
        "install_kubernetes", KEY_FILE=KEY_FILE, KEY_FOLDER=KEY_FILE.rpartition("/")[0], SOURCE=source,
        WRITE_SOURCE=file_script(SOURCE_FILE, f"deb [signed-by={KEY_FILE}] {source} /\n"),
        PACKAGES=packages, PROGRAMS=" ".join(PROGRAMS),
    )  # fmt: skip
    return [
        Action(
            node.name, KUBERNETES, f"install Kubernetes {version} from the project's packages",
            recording_packages(install) + "systemctl enable kubelet >/dev/null 2>&1\n",
            timeout_s=1800,
            remedy="the machine must reach pkgs.k8s.io; without internet, create a bundle with"
            " `k8sdds bundle create` and name it in the profile",
        )
    ]  # fmt: skip


def _import(state: DesiredState, node: Node, phase: str, images: Sequence[Item], title: str) -> list[Action]:
    """Plan to import the images that a node does not have, or has with another digest."""
    current = state.facts[node.name].pairs("image")
    missing = tuple(image for image in images if current.get(image.name) != f"sha256:{image.sha256}")
    if not missing:
        return []
    names = ", ".join(image.name.rpartition("/")[2] for image in missing)
    described = title.format(count=len(missing), names=names)
    return [Action(node.name, phase, described, "", images=missing, timeout_s=900)]
