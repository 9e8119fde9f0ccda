"""Collect diagnostics of a cluster from all its machines in one archive."""

from __future__ import annotations

import io
import tarfile
import time
from datetime import UTC, datetime
from pathlib import Path

from k8sdds.deploy import record
from k8sdds.deploy.actions import PRELUDE, STATE
from k8sdds.deploy.runner import redact
from k8sdds.model.profile import Profile
from k8sdds.system.errors import K8sddsError, PrerequisiteError
from k8sdds.system.faults import explained
from k8sdds.system.files import write_atomically
from k8sdds.system.ssh import Connections, Host

COLLECT_TIMEOUT_S = 180

# Name of a file in the archive, and the command that prints its content. No command reads a key, a token or a
# Secret.
NODE_COMMANDS = (
    ("system.txt", "uname -a; cat /etc/os-release; uptime; free -m; df -h; cat /proc/cmdline"),
    ("kubelet.txt", "journalctl --no-pager --unit kubelet --lines 2000"),
    ("containerd.txt", "journalctl --no-pager --unit containerd --lines 1000"),
    ("kernel.txt", "dmesg --ctime 2>/dev/null | tail -n 500"),
    ("containers.txt", "for kind in containers tasks images; do ctr --namespace k8s.io $kind ls; done"),
    ("network.txt", "ip -d link; ip addr; ip route show table all; ip neigh; ss -tulnp; ip -o xfrm policy"),
    ("rules.txt", "iptables-save; nft list ruleset"),
    ("cni.txt", "ls -l /etc/cni/net.d /opt/cni/bin; head -n 100 /etc/cni/net.d/*"),
    ("k8sdds.txt", f"cat {STATE}/cluster; ls -lR {STATE}; cat /etc/containerd/config.toml"),
    ("sysctl.txt", "sysctl -a 2>/dev/null | grep -E '^net\\.(core|ipv4|ipv6|bridge)|^kernel\\.|^vm\\.'"),
)  # fmt: skip
CONTROL_PLANE_COMMANDS = (
    ("nodes.txt", "kubectl get nodes -o wide; kubectl describe nodes"),
    ("objects.txt", "kubectl get all,configmaps,pdb,networkpolicies -A -o wide"),
    ("events.txt", "kubectl get events -A --sort-by=.lastTimestamp"),
    ("pods.txt", "kubectl describe pods -A"),
    (
        "pod-logs.txt",
        "kubectl get pods -A --no-headers -o custom-columns=S:.metadata.namespace,P:.metadata.name |"
        " grep -E '^(kube-system|k8sdds-)' | while read -r namespace pod; do echo \"=== $namespace/$pod\";"
        " kubectl --namespace $namespace logs --all-containers --tail 500 $pod; done",
    ),
)


def collect(
    profile: Profile, connections: Connections, output: Path | None = None
) -> tuple[Path, list[K8sddsError]]:
    """Write an archive of the logs of all machines; return its path, and an error for each that is missing."""
    at = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    path = output or Path(f"{profile.name}-logs-{at}.tar.gz")
    control_plane = profile.control_plane.name

    def run_commands(host: Host) -> dict[str, str]:
        commands = NODE_COMMANDS + (CONTROL_PLANE_COMMANDS if host.name == control_plane else ())
        outputs = {}
        for name, command in commands:
            done = host.run(f"{PRELUDE}set +e\n{command}\n", timeout_s=COLLECT_TIMEOUT_S)
            outputs[name] = redact(done.out + (f"\n--- stderr\n{done.err}" if done.err else ""))
        return outputs

    outputs, failures = connections.each(run_commands, connections.hosts)
    files = {f"{node}/{name}": text for node, texts in outputs.items() for name, text in texts.items()}
    for node, error in failures.items():
        files[f"{node}/unreached.txt"] = f"{error}\n"
    deploy_logs = sorted(record.logs(profile.name).glob("*.log"))
    if not outputs and not deploy_logs:
        raise PrerequisiteError("\n".join(["there are no logs to collect:", *map(str, failures.values())]))
    for log in deploy_logs:
        files[f"deploy/{log.name}"] = log.read_text()
    with explained(f"cannot write {path}", "name another file: --output FILE"):
        _write_archive(path, files)
    return path, list(failures.values())


def _write_archive(path: Path, files: dict[str, str]) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in sorted(files.items()):
            content = text.encode()
            member = tarfile.TarInfo(f"{path.name.removesuffix('.tar.gz')}/{name}")
            member.size, member.mode, member.mtime = len(content), 0o600, int(time.time())
            archive.addfile(member, io.BytesIO(content))
    write_atomically(path, packed.getvalue(), mode=0o600, exclusive=True)
