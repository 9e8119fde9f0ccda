"""Run etcd and a real API server in a sandbox, for daemons in a virtual machine. No other part of Kubernetes runs.

They run on this machine's processor, because an emulated one takes minutes to start them.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

from k8sdds.bundle import golang
from k8sdds.bundle.contents import HOST_ARCH, PROGRAMS
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.sandbox import Sandbox

READY_S = 300
PORT = 6443


@dataclass(frozen=True)
class ControlPlane:
    """A running API server. It ends with its sandbox."""

    within: Sandbox
    program: str
    kubeconfig: Path
    """Of a user with all rights."""

    def kubectl(self, *args: str, stdin: str = "") -> str:
        """Run kubectl and return its output. Raises PrerequisiteError."""
        return self.within.run([self.program, "kubectl", "--kubeconfig", str(self.kubeconfig), *args], stdin)

    def create(self, objects: Sequence[dict[str, Any]]) -> None:
        """Create objects."""
        self.kubectl(
            "create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        )


def start(within: Sandbox, address: str, folder: Path) -> ControlPlane:
    """Start etcd and an API server, and wait until it is ready. Its files are in the folder."""
    etcd, kubernetes = (
        str(golang.build(PROGRAMS[name], HOST_ARCH, print)) for name in ("etcd", "kubernetes")
    )
    token = secrets.token_hex(16)
    # An API server that allows everything accepts no anonymous requests.
    (folder / "tokens").write_text(f"{token},admin,admin,system:masters\n")
    key = generate_private_key(65537, 2048)
    (folder / "sa.key").write_bytes(key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    ))  # fmt: skip
    created = ControlPlane(within, kubernetes, folder / "kubeconfig")
    created.kubeconfig.write_text(_kubeconfig(address, token))
    _start(within, folder / "etcd.log", [etcd, f"--data-dir={folder}/etcd", "--unsafe-no-fsync"])
    _start(within, folder / "api.log", [
        kubernetes, "kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", f"--advertise-address={address}",
        f"--secure-port={PORT}", f"--cert-dir={folder}/api", "--authorization-mode=AlwaysAllow",
        f"--token-auth-file={folder}/tokens", "--service-cluster-ip-range=10.96.0.0/16",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={folder}/sa.key", f"--service-account-signing-key-file={folder}/sa.key",
    ])  # fmt: skip
    _await_ready(created, folder / "api.log")
    return created


def _start(within: Sandbox, log: Path, argv: Sequence[str]) -> None:
    with log.open("wb") as output:
        subprocess.Popen(
            [*within.enter(), *argv], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )


def _kubeconfig(address: str, token: str) -> str:
    cluster = {"server": f"https://{address}:{PORT}", "insecure-skip-tls-verify": True}
    context = {"cluster": "c", "user": "u"}
    return json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": token}}], "contexts": [{"name": "c", "context": context}],
    })  # fmt: skip


def _await_ready(created: ControlPlane, log: Path) -> None:
    deadline = time.monotonic() + READY_S
    while True:
        try:
            created.kubectl("get", "--raw", "/readyz")
            return
        except PrerequisiteError as error:
            if time.monotonic() > deadline:
                raise AssertionError(f"{error.message}\n{log.read_text()[-3000:]}") from None
        time.sleep(1)
