"""Install the programs and images of Kubernetes on every node, from the bundle or from packages."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from k8sdds.deploy.actions import STATE, Action, Effect, Images, file_hashes, file_script
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.phases.phase import Phase
from k8sdds.model.profile import Node

UNIT_FILE = "/etc/systemd/system/kubelet.service"
DROP_IN_FILE = "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf"
FILES = (UNIT_FILE, DROP_IN_FILE)
REPOSITORY = "https://pkgs.k8s.io/core:/stable:/v1.{minor}/deb/"
"""Package repository of the Kubernetes project."""
SOURCE_FILE = "/etc/apt/sources.list.d/k8sdds-kubernetes.list"
KEY_FILE = "/etc/apt/keyrings/k8sdds-kubernetes.asc"
PROGRAMS = ("kubeadm", "kubelet", "kubectl")

UNIT = """\
[Unit]
Description=Kubernetes node agent
Wants=network-online.target
After=network-online.target containerd.service
StartLimitIntervalSec=0

[Service]
ExecStart=/usr/local/bin/kubelet
Restart=always
RestartSec=2

[Install]
WantedBy=multi-user.target
"""
# Names the files that kubeadm writes for the kubelet.
DROP_IN = """\
[Service]
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/local/bin/kubelet --config=/var/lib/kubelet/config.yaml \\
  --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf \\
  $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
"""


class Kubernetes(Phase):
    """Install kubeadm, kubelet and kubectl, and import the images that a node needs before it joins."""

    title = "kubernetes packages"

    def plan(self, state: DesiredState, node: Node) -> list[Action]:
        """Plan the installation of programs, then the import of images."""
        install = self._from_bundle if state.software.from_bundle else self._from_packages
        images = state.software.images(
            state.architecture(node.name), node.is_control_plane, state.network.images
        )
        return install(state, node) + import_images(
            state, node, self.title, images,
            lambda names: f"import {len(names)} images of Kubernetes and its network",
        )  # fmt: skip

    def _from_bundle(self, state: DesiredState, node: Node) -> list[Action]:
        architecture = state.architecture(node.name)
        uploads = tuple(
            upload
            for upload in state.software.binaries(architecture)
            if state.file_sha256(node.name, upload.target) != upload.sha256
        )
        files = {UNIT_FILE: UNIT, DROP_IN_FILE: DROP_IN}
        hashes = file_hashes(files)
        stale = [path for path in files if state.file_sha256(node.name, path) != hashes[path]]
        # Official builds are files where built programs have links: both must be checked after a change of source.
        links = {
            path: target for path, target in state.software.links(architecture).items()
            if state.symlink_target(node.name, path) != target
        }  # fmt: skip
        if not uploads and not stale and not links:
            return []
        script = "".join(file_script(path, files[path]) for path in stale)
        for path, target in links.items():
            script += f"keep {shlex.quote(path)}; ln -sfn {shlex.quote(target)} {shlex.quote(path)}\n"
        script += "systemctl daemon-reload\nsystemctl enable kubelet >/dev/null 2>&1\n"
        if state.is_joined(node.name):
            script += "systemctl restart kubelet\n"
        version = state.software.bundle.kubernetes
        installed = {path: hashes[path] for path in stale} | {
            upload.target: upload.sha256 for upload in uploads
        }
        return [
            Action(
                node.name, self.title, f"install Kubernetes {version} from the bundle", script, uploads,
                timeout_s=900, effect=Effect(files=installed, symlinks=links),
            )
        ]  # fmt: skip

    def _from_packages(self, state: DesiredState, node: Node) -> list[Action]:
        version, current = state.profile.kubernetes.version, state.facts[node.name].pairs("program")
        versions = dict.fromkeys(PROGRAMS, f"v{version}")
        if all(current.get(program) == versions[program] for program in PROGRAMS):
            return []
        source = REPOSITORY.format(minor=state.profile.kubernetes.minor)
        packages = " ".join(f"{program}='{version}-*'" for program in PROGRAMS)
        script = (
            "export DEBIAN_FRONTEND=noninteractive\n"
            "before=$(dpkg-query -Wf '${Package}\\n' | sort)\n"
            "[ -e /etc/ssl/certs/ca-certificates.crt ] || {\n"
            "  apt-get update -q=2; apt-get install -q=2 -y --no-install-recommends ca-certificates; }\n"
            f"keep {KEY_FILE}; mkdir -p {KEY_FILE.rpartition('/')[0]}\n"
            # apt's own HTTPS client: a fresh system may have no other.
            f"/usr/lib/apt/apt-helper -o Acquire::Retries=3 download-file {source}Release.key {KEY_FILE}.new"
            f" >/dev/null\nchmod 644 {KEY_FILE}.new; mv -f {KEY_FILE}.new {KEY_FILE}\n"
            + file_script(SOURCE_FILE, f"deb [signed-by={KEY_FILE}] {source} /\n")
            + "apt-get update -q=2\n"
            f"apt-get install -q=2 -y --allow-change-held-packages {packages}\n"
            f"apt-mark hold {' '.join(PROGRAMS)} >/dev/null\n"
            f"dpkg-query -Wf '${{Package}}\\n' | sort >{STATE}/packages.now\n"
            f'echo "$before" | comm -13 - {STATE}/packages.now >>{STATE}/packages\n'
            f"rm {STATE}/packages.now\nsystemctl enable kubelet >/dev/null 2>&1\n"
        )
        return [
            Action(
                node.name, self.title, f"install Kubernetes {version} from the project's packages", script,
                timeout_s=1800,
                remedy="the machine must reach pkgs.k8s.io; without internet, create a bundle with"
                " `k8sdds bundle create` and name it in the profile",
                effect=Effect(programs=versions),
            )
        ]  # fmt: skip


def import_images(
    state: DesiredState, node: Node, phase: str, images: Images, title: Callable[[Sequence[str]], str]
) -> list[Action]:
    """Plan to import the images that a node does not have, or has with another digest.

    Args:
        state: The desired state, and the facts.
        node: The node.
        phase: Title of the phase.
        images: The required images.
        title: Returns the action's title from the names of the missing images.
    """
    current = state.facts[node.name].pairs("image")
    missing = {name: sha for name, sha in images.digests if current.get(name) != f"sha256:{sha}"}
    if not missing:
        return []
    archive = Images(images.arch, tuple(missing.items()))
    return [
        Action(
            node.name, phase, title(list(missing)), "", images=archive, timeout_s=900,
            effect=Effect(images=missing),
        )
    ]  # fmt: skip
