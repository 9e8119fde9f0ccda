"""Kubernetes' programs on every node: copied from the bundle, or the project's packages."""

from __future__ import annotations

import hashlib
import shlex

from k8sdds.deploy.actions import STATE, Action, file_script
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.software import Images
from k8sdds.model.profile import Node

PHASE = "kubernetes packages"
UNIT_FILE = "/etc/systemd/system/kubelet.service"
DROP_IN_FILE = "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf"
FILES = (UNIT_FILE, DROP_IN_FILE)
REPOSITORY = "https://pkgs.k8s.io/core:/stable:/v1.{minor}/deb/"
"""Where the Kubernetes project publishes its packages."""
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
# What kubeadm writes for the kubelet, and where.
DROP_IN = """\
[Service]
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/local/bin/kubelet --config=/var/lib/kubelet/config.yaml \\
  --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf \\
  $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
"""


def plan(wanted: DesiredState, node: Node) -> list[Action]:
    """Programs, and the images that must be there before the node is part of the cluster."""
    actions = _from_bundle(wanted, node) if wanted.software.from_bundle else _from_packages(wanted, node)
    images = missing(
        wanted,
        node,
        wanted.software.images(wanted.arch(node.name), node.is_control_plane, wanted.network.images),
    )
    if images.digests:
        actions.append(
            Action(
                node.name, PHASE, f"import {len(images.digests)} images of Kubernetes and its network", "",
                images=images, timeout_s=900,
            )
        )  # fmt: skip
    return actions


def missing(wanted: DesiredState, node: Node, images: Images) -> Images:
    """Those that are not on the node, or are others of the same name."""
    there = wanted.facts[node.name].pairs("image")
    left = tuple((name, sha) for name, sha in images.digests if there.get(name) != f"sha256:{sha}")
    return Images(images.arch, left)


def _from_bundle(wanted: DesiredState, node: Node) -> list[Action]:
    arch = wanted.arch(node.name)
    uploads = tuple(
        one for one in wanted.software.binaries(arch) if wanted.sha256(node.name, one.target) != one.sha256
    )
    files = {UNIT_FILE: UNIT, DROP_IN_FILE: DROP_IN}
    stale = {
        path: text
        for path, text in files.items()
        if wanted.sha256(node.name, path) != hashlib.sha256(text.encode()).hexdigest()
    }
    if not uploads and not stale:
        return []
    script = "".join(file_script(path, text) for path, text in stale.items())
    for link, target in wanted.software.links(arch).items():
        script += f"keep {shlex.quote(link)}; ln -sfn {shlex.quote(target)} {shlex.quote(link)}\n"
    script += "systemctl daemon-reload\nsystemctl enable kubelet >/dev/null 2>&1\n"
    if wanted.joined(node.name):
        script += "systemctl restart kubelet\n"
    version = wanted.software.bundle.kubernetes
    return [
        Action(
            node.name, PHASE, f"install Kubernetes {version} from the bundle", script, uploads, timeout_s=900
        )
    ]


def _from_packages(wanted: DesiredState, node: Node) -> list[Action]:
    version, there = wanted.profile.kubernetes.version, wanted.facts[node.name].pairs("program")
    if all(there.get(program) == f"v{version}" for program in PROGRAMS):
        return []
    source = REPOSITORY.format(minor=wanted.profile.kubernetes.minor)
    packages = " ".join(f"{program}='{version}-*'" for program in PROGRAMS)
    script = (
        "export DEBIAN_FRONTEND=noninteractive\n"
        "before=$(dpkg-query -Wf '${Package}\\n' | sort)\n"
        "[ -e /etc/ssl/certs/ca-certificates.crt ] || {\n"
        "  apt-get update -q=2; apt-get install -q=2 -y --no-install-recommends ca-certificates; }\n"
        f"keep {KEY_FILE}; mkdir -p {KEY_FILE.rpartition('/')[0]}\n"
        # apt's own client for https: a fresh system may have no other.
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
            node.name, PHASE, f"install Kubernetes {version} from the project's packages", script,
            timeout_s=1800,
            remedy="the machine must reach pkgs.k8s.io; without internet use a bundle: k8sdds bundle create",
        )
    ]  # fmt: skip
