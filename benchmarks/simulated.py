"""Run a Kubernetes control plane without machines, to measure growth with the number of pods and nodes.

etcd, API server, controllers and scheduler are real processes. kwok replaces the kubelets: it reports that
pods run without running them. Exec streams into pods are therefore not available.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from k8sdds.bundle import golang
from k8sdds.bundle.contents import HOST_ARCH, PROGRAMS, Program
from k8sdds.kubernetes.client import ApiError, KubernetesClient
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.paths import shared
from k8sdds.system.sandbox import Sandbox
from k8sdds.testbeds.cluster import permissions
from k8sdds.testbeds.cluster.nodes import NodeInfo

HERE = Path(__file__).parent
KWOK = Program("kwok", "0.8.0", str(HERE / "kwok"), "sigs.k8s.io/kwok/cmd/kwok")
STAGES = HERE / "simulated-stages.yaml"
ADDRESS = "192.0.2.1"
"""Address of the API server in documents that require one; all connections use the loopback interface."""
MARK = ("kwok.x-k8s.io/node", "fake")
"""Annotation of the nodes that kwok manages."""
PODS_EACH = 110
"""Number of pods per node, the default of kubelets."""
INFO = (
    "bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "kubeletVersion", "machineID",
    "osImage", "systemUUID",
)  # fmt: skip
INFO_HERE = {"architecture": HOST_ARCH, "operatingSystem": "linux"}
READY_S = 120
USER = "k8sdds-user"
"""The user in deploy/rights/cluster.yaml."""

POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "users": [USER]}, {"level": "None"}],
}


def programs(note: Callable[[str], None]) -> dict[str, Path]:
    """Return the paths of etcd, Kubernetes and kwok; build what is not in the cache.

    Raises:
        PrerequisiteError: a program cannot be built.
    """
    needed = (PROGRAMS["etcd"], PROGRAMS["kubernetes"], KWOK)
    return {program.name: golang.build(program, HOST_ARCH, note) for program in needed}


class ControlPlane:
    """A running control plane. It stops with the sandbox in which it was started.

    All its processes are children of this process, so create it within a sandbox.
    """

    def __init__(self, folder: Path, programs: dict[str, Path]) -> None:
        """Start the control plane with its files in an empty folder and wait until it is ready."""
        self.folder = folder
        self._programs = programs
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        for arguments in (["link", "set", "lo", "up"], ["address", "add", f"{ADDRESS}/32", "dev", "lo"]):
            subprocess.run(["ip", *arguments], check=True)
        self._write_files()
        self._start_all()
        self.admin = KubernetesClient.from_kubeconfig(folder / "admin.conf", None)
        self.user = KubernetesClient.from_kubeconfig(folder / "user.conf", None)
        self._grant()

    def _write_files(self) -> None:
        key = rsa.generate_private_key(65537, 2048)
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        tokens = {"admin": secrets.token_hex(16), "user": secrets.token_hex(16)}
        lines = [f'{tokens["admin"]},admin,1,"system:masters"', f"{tokens['user']},{USER},2"]
        self._write("service-accounts.key", pem)
        self._write("tokens.csv", "\n".join(lines).encode())
        self._write("audit.yaml", yaml.safe_dump(POLICY).encode())
        for name, token in tokens.items():
            cluster = {
                "server": "https://127.0.0.1:6443",
                "certificate-authority": str(self.folder / "apiserver.crt"),
            }
            config = {
                "apiVersion": "v1", "kind": "Config", "current-context": name,
                "clusters": [{"name": "simulated", "cluster": cluster}],
                "users": [{"name": name, "user": {"token": token}}],
                "contexts": [{"name": name, "context": {"cluster": "simulated", "user": name}}],
            }  # fmt: skip
            self._write(f"{name}.conf", yaml.safe_dump(config).encode())

    def _write(self, name: str, content: bytes) -> None:
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_bytes(content)

    def _start_all(self) -> None:
        folder, kubeconfig = self.folder, f"--kubeconfig={self.folder / 'admin.conf'}"
        self._start("etcd", "etcd", f"--data-dir={folder / 'etcd'}", "--unsafe-no-fsync", "--log-level=warn")
        self._start(
            "kube-apiserver", "kubernetes", "kube-apiserver", "--etcd-servers=http://127.0.0.1:2379",
            "--bind-address=127.0.0.1", f"--advertise-address={ADDRESS}", "--endpoint-reconciler-type=none",
            "--secure-port=6443", f"--cert-dir={folder}", "--service-cluster-ip-range=10.96.0.0/16",
            "--service-account-issuer=https://simulated.invalid",
            f"--service-account-key-file={folder / 'service-accounts.key'}",
            f"--service-account-signing-key-file={folder / 'service-accounts.key'}",
            f"--token-auth-file={folder / 'tokens.csv'}", "--authorization-mode=RBAC",
            f"--audit-policy-file={folder / 'audit.yaml'}", f"--audit-log-path={folder / 'audit.log'}",
        )  # fmt: skip
        self._await_ready()
        own = ["--bind-address=127.0.0.1", "--leader-elect=false", kubeconfig]
        self._start(
            "kube-controller-manager", "kubernetes", "kube-controller-manager", *own,
            f"--service-account-private-key-file={folder / 'service-accounts.key'}",
        )  # fmt: skip
        self._start("kube-scheduler", "kubernetes", "kube-scheduler", *own)
        self._start(
            "kwok", "kwok", kubeconfig, "--manage-all-nodes=false", f"--node-ip={ADDRESS}",
            f"--manage-nodes-with-annotation-selector={MARK[0]}={MARK[1]}", "--cidr=10.244.0.0/16",
            "--node-lease-duration-seconds=40", f"--config={STAGES}",
        )  # fmt: skip

    def _start(self, name: str, program: str, *arguments: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            self._running[name] = subprocess.Popen(
                [str(self._programs[program]), *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                cwd=self.folder,
            )  # fmt: skip

    def _await_ready(self) -> None:
        """Wait until the API server is ready; it writes its certificate earlier."""
        end = time.monotonic() + READY_S
        while time.monotonic() < end:
            self.check()
            if (self.folder / "apiserver.crt").exists():
                try:
                    KubernetesClient.from_kubeconfig(self.folder / "admin.conf", None).get_raw("/readyz")
                    return
                except (PrerequisiteError, ApiError):
                    pass
            time.sleep(0.1)
        raise PrerequisiteError(
            f"the API server is not ready after {READY_S} s{self._log_tail('kube-apiserver')}"
        )

    def check(self) -> None:
        """Raise PrerequisiteError with the end of the log if a process has exited."""
        for name, process in self._running.items():
            if process.poll() is not None:
                raise PrerequisiteError(f"{name} exited with code {process.returncode}{self._log_tail(name)}")

    def _log_tail(self, name: str) -> str:
        lines = (self.folder / f"{name}.log").read_text(errors="replace").strip().splitlines()
        return f": {' | '.join(lines[-3:])[-600:]}" if lines else ""

    def _grant(self) -> None:
        """Grant the user the permissions of deploy/rights/cluster.yaml."""
        paths = {"ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings"}
        text = (shared("deploy") / "rights" / "cluster.yaml").read_text()
        for document in yaml.safe_load_all(text):
            self.admin.create(f"/apis/rbac.authorization.k8s.io/v1/{paths[document['kind']]}", document)

    # -- nodes --------------------------------------------------------------------------------------------

    def nodes(self, count: int) -> None:
        """Create nodes until there are `count` and wait until all accept pods."""
        existing = {node["metadata"]["name"] for node in self.admin.get(permissions.NODES)["items"]}
        for name in (f"simulated-{number:03}" for number in range(len(existing), count)):
            self.admin.create(permissions.NODES, _node(name))
        end = time.monotonic() + READY_S
        listed = self.admin.get(permissions.NODES)
        waiting = {item["metadata"]["name"] for item in listed["items"] if NodeInfo.parse(item).unusable}
        version = listed["metadata"]["resourceVersion"]
        while waiting and (left := end - time.monotonic()) > 0:
            self.check()
            for event in self.admin.watch(permissions.NODES, for_s=max(1.0, left), resourceVersion=version):
                version = event["object"]["metadata"]["resourceVersion"]
                if not (node := NodeInfo.parse(event["object"])).unusable:
                    waiting.discard(node.name)
                if not waiting:
                    break
        if waiting:
            log = self._log_tail("kwok")
            raise PrerequisiteError(f"{len(waiting)} simulated nodes are not ready after {READY_S} s{log}")

    # -- audit log ------------------------------------------------------------------------------

    def audited(self) -> Counter[str]:
        """Return the number of requests of `USER` so far, by the kinds of `KubernetesClient.calls`."""
        kinds = {}
        for line in (self.folder / "audit.log").read_text().splitlines():
            event = json.loads(line)
            kinds[event["auditID"]] = "get" if event["verb"] == "list" else event["verb"]
        return Counter(kinds.values())


def _node(name: str) -> dict[str, Any]:
    capacity = {"cpu": "32", "memory": "256Gi", "pods": str(PODS_EACH)}
    labels = {"kubernetes.io/arch": HOST_ARCH, "kubernetes.io/os": "linux", "kubernetes.io/hostname": name}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": dict([MARK])},
        "status": {
            "allocatable": capacity,
            "capacity": capacity,
            "nodeInfo": dict.fromkeys(INFO, "") | INFO_HERE,
        },
    }


def inside(script: Path, arguments: Sequence[str]) -> int:
    """Run a script in a new sandbox, which is removed with all its processes when the script exits."""
    sandbox = Sandbox("benchmark-simulated")
    try:
        return subprocess.run(
            [*sandbox.enter(), sys.executable, str(script.resolve()), *arguments]
        ).returncode
    finally:
        sandbox.close()
