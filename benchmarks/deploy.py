"""Compare the time of `k8sdds deploy` with that of the same kubeadm commands run by hand.

There are three local nodes. They exist before the clock starts, and the bundle and its image archives are
available to them. The benchmark alternates between:

  deploy   `k8sdds deploy PROFILE --yes`: from gathering facts to three Ready nodes and a passed smoke test.
           The smoke test is reported separately, because the manual sequence has none.
  by hand  the shortest sequence that results in three Ready nodes: programs, the configuration of containerd
           and images on all nodes in parallel; then kubeadm init, the network, kubeadm join on both workers
           in parallel, and waiting until all nodes are Ready. It has no checks, no records and no way to undo
           it. Its SSH connections are open before the clock starts.

The result is the ratio of the two without the smoke test (target: at most 1.15). After each deploy, the
benchmark times a second deploy, which has nothing to do (target: under 3 s), `k8sdds status`, and switches of
the network (target: 15 s without the smoke test; the whole command is listed separately). At the end,
it times gathering the facts of 20 hosts (sshd in namespaces) in parallel. Root only.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

import common

from k8sdds import nodes
from k8sdds.bundle.contents import HOST_ARCH
from k8sdds.deploy import deploy as flow
from k8sdds.deploy import facts, network_install, plan, profiles, software
from k8sdds.deploy.actions import KUBECONFIG
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.phases import kubeadm, kubernetes, machine
from k8sdds.kubernetes import apply
from k8sdds.model.profile import Profile
from k8sdds.system.ssh import Connections

AIM_RATIO, AIM_AGAIN_S, AIM_SWITCH_S = 1.15, 3.0, 15.0
SWITCHES = ("flannel-hostgw", "flannel-vxlan")
"""Networks that a deployed cluster is switched to, in this order."""
HOSTS = 20
PROFILE = """\
name: bench
provider: local
nodes:
- {name: head, roles: [control-plane, worker]}
- name: work1
- name: work2
metrics_server: null
software: bundle
"""
SWITCH, COMMAND = "switch to", "the whole command: switch to"
SMOKE = re.compile(r"^head: smoke test: .* \(([0-9.]+) s\)$", re.MULTILINE)
ADMIN = f"export KUBECONFIG={KUBECONFIG}\n"


def timed(*args: str | Path) -> tuple[float, str]:
    """Run a k8sdds command and return its seconds and its output."""
    began = time.perf_counter()
    done = subprocess.run([common.K8SDDS, *args], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    took = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"k8sdds {args[0]} failed: {done.stdout}{done.stderr}")
    return took, done.stdout


def recreate_nodes(path: Path) -> None:
    """Recreate the nodes without a cluster, and create missing image archives."""
    timed("destroy", path, "--yes")
    profile = profiles.load(str(path))
    node_software = flow.create_machines(profile, common.progress)
    assert node_software is not None
    needed = network_install.render(profile).images
    for images in (
        node_software.images(HOST_ARCH, True, needed),
        node_software.images(HOST_ARCH, False, needed),
    ):
        node_software.archive(images)
    node_software.archive(node_software.own_images(HOST_ARCH))


def deploy(path: Path) -> dict[str, float]:
    """Return the seconds of a deploy, of its smoke test, of a second deploy, of status and of network switches."""
    took, output = timed("deploy", path, "--yes")
    match = SMOKE.search(output)
    if match is None:
        raise SystemExit(f"the output of deploy contains no smoke test: {output}")
    smoke = float(match[1])
    again, output = timed("deploy", path, "--yes")
    if output != "no changes\n":
        raise SystemExit(f"the second deploy made changes: {output}")
    status, _ = timed("status", path)
    return {
        "deploy": took - smoke, "smoke test": smoke, "again": again, "status": status,
        **switches(path, SWITCHES),
    }  # fmt: skip


def switches(path: Path, networks: Sequence[str]) -> dict[str, float]:
    """Return the seconds of each switch without its smoke test, and of the whole command."""
    times: dict[str, float] = {}
    for network in networks:
        command, output = timed("network", "switch", path, network, "--yes", "--json")
        times |= {f"{SWITCH} {network}": json.loads(output)["took_s"], f"{COMMAND} {network}": command}
    return times


class ByHand:
    """The manual installation: all files and commands are prepared and run without a pause."""

    def __init__(self, profile: Profile, connections: Connections) -> None:
        self.profile = profile
        self.connections = connections
        facts_by_machine, _ = facts.gather(connections, plan.SYSCTLS)
        self.software = software.for_profile(profile, (HOST_ARCH,), common.progress)
        self.wanted = DesiredState(profile, facts_by_machine, self.software, network_install.render(profile))

    def ssh(self, node: str, script: str) -> str:
        done = self.connections.hosts[node].run(f"set -e\n{script}", timeout_s=600)
        if done.code:
            raise SystemExit(f"{node} by hand: {done.err or done.out}")
        return done.out

    def prepare(self, node: str) -> str:
        """Return the commands that prepare a bare node for kubeadm."""
        here = self.profile.node(node)
        lines = [f"install -D {item.shared} {item.target}\n" for item in self.software.binaries(HOST_ARCH)]
        lines += [f"ln -sf {target} {link}\n" for link, target in self.software.links(HOST_ARCH).items()]
        for path, text in (
            (machine.CONFIG_FILE, machine.containerd_config(self.wanted, here)),
            (kubernetes.UNIT_FILE, kubernetes.UNIT),
            (kubernetes.DROP_IN_FILE, kubernetes.DROP_IN),
        ):
            lines.append(f"mkdir -p {PurePosixPath(path).parent}\n{written(path, text)}")
        images = self.software.images(HOST_ARCH, here.is_control_plane, self.wanted.network.images)
        settings = " ".join(f"{key}={value}" for key, value in machine.SYSCTLS.items())
        return "".join(lines) + (
            f"sysctl -qw {settings}\nsystemctl daemon-reload\nsystemctl enable kubelet 2>/dev/null\n"
            "systemctl restart containerd\nuntil ctr version >/dev/null 2>&1; do sleep 0.1; done\n"
            f"ctr --namespace k8s.io images import {self.software.archive(images)[1]} >/dev/null\n"
        )

    def seconds(self) -> float:
        """Install the cluster on bare nodes and return the seconds until all nodes are Ready."""
        head, workers = self.wanted.control_plane, [node.name for node in self.wanted.workers()]
        scripts = {node: self.prepare(node) for node in (head, *workers)}
        manifests = written("/root/network.json", apply.list_document(self.wanted.network.manifests))
        init = (
            written("/root/init.yaml", kubeadm.configuration(self.wanted))
            + "kubeadm init --config /root/init.yaml >/root/log 2>&1 || { tail /root/log >&2; exit 1; }\n"
            + ADMIN + manifests + "kubectl apply --server-side -f /root/network.json >/dev/null\n"
            + "kubeadm token create --print-join-command\n"
        )  # fmt: skip
        wait = (
            ADMIN + "kubectl wait --for=condition=Ready node --all --timeout=300s >/dev/null\n"
            "kubectl --namespace kube-system rollout status deployment/coredns --timeout=300s >/dev/null\n"
        )
        began = time.perf_counter()
        with ThreadPoolExecutor() as pool:
            prepared = {node: pool.submit(self.ssh, node, script) for node, script in scripts.items()}
            prepared[head].result()
            join = self.ssh(head, init).strip()

            def joined(node: str) -> None:
                prepared[node].result()
                lax = "--ignore-preflight-errors=SystemVerification"
                self.ssh(node, f"{join} {lax} >/root/log 2>&1 || {{ tail /root/log >&2; exit 1; }}\n")

            list(pool.map(joined, workers))
        self.ssh(head, wait)
        return time.perf_counter() - began


def written(path: str, text: str) -> str:
    """Return a shell command that writes a file."""
    return f"cat >{path} <<'END_OF_FILE'\n{text}END_OF_FILE\n"


def by_hand(path: Path) -> float:
    """Return the seconds of the manual installation on existing nodes."""
    profile = profiles.load(str(path))
    with Connections(profiles.targets(profile)) as connections:
        return ByHand(profile, connections).seconds()


def gather(count: int, path: Path) -> float:
    """Return the seconds to connect to `count` hosts and gather their facts."""
    hosts = nodes.up("hosts", [nodes.NodeSpec(f"host{number}", boot="sshd") for number in range(count)])
    try:
        names = ", ".join(f"{{name: {host.name}}}" for host in hosts[1:])
        path.write_text(
            f"name: hosts\naccess: {{ssh_config: {hosts[0].ssh_config}}}\n"
            f"nodes: [{{name: host0, roles: [control-plane]}}, {names}]\n"
        )
        targets = profiles.targets(profiles.load(str(path)))
        began = time.perf_counter()
        with Connections(targets) as connections:
            gathered, failures = facts.gather(connections, plan.SYSCTLS, plan.FILES)
        took = time.perf_counter() - began
        if failures or len(gathered) != count:
            raise SystemExit(f"cannot gather the facts of all hosts: {failures}")
        return took
    finally:
        nodes.down("hosts")


def main() -> int:
    options = common.parse(common.parser(__doc__ or "", common.Defaults(pairs=3, quick_pairs=1)))
    if os.geteuid() != 0:
        raise SystemExit("local nodes require root")
    report = common.Report("deploy", options)
    values = common.Values()
    with tempfile.TemporaryDirectory(prefix="k8sdds-bench-") as folder:
        state = Path(folder, "state")
        state.mkdir(mode=0o700)
        os.environ["K8SDDS_STATE_DIR"] = str(state)
        path = Path(folder, "bench.yaml")
        path.write_text(PROFILE)
        try:
            for number, what in common.interleave(options.pairs, [["deploy", "by hand"]], options.seed):
                recreate_nodes(path)
                times = deploy(path) if what == "deploy" else {"by hand": by_hand(path)}
                for item, seconds in times.items():
                    values.add(item, number, seconds)
                common.progress(", ".join(f"{item} {seconds:.1f} s" for item, seconds in times.items()))
        finally:
            timed("destroy", path, "--yes")
        for number in range(options.pairs):
            values.add("facts", number, gather(HOSTS, Path(folder, "hosts.yaml")))
    show(report, values)
    return 0


TITLES = {
    "deploy": "deploy of three nodes, without its smoke test",
    "by hand": "kubeadm by hand",
    "smoke test": "smoke test",
    "again": "deploy again: no changes",
    "status": "status",
    "facts": f"facts of {HOSTS} hosts",
}


def show(report: common.Report, values: common.Values) -> None:
    """Add the tables and the data to the report and print it."""
    rows = []
    titles = TITLES | {item: item for item in values.by_item if item not in TITLES}
    for item, title in titles.items():
        seconds = list(values.by_item[item].values())
        each = " ".join(common.number(value, 2) for value in seconds)
        rows.append((title, common.number(values.median(item), 2), each))
        report.data[item] = seconds
    report.text(common.table(("seconds", "median", "each"), rows))
    ratio = values.ratio("deploy", "by hand")
    assert ratio is not None
    report.data["ratio"] = common.as_json(ratio)
    report.text(f"RATIO of deploy to kubeadm by hand: {common.describe(ratio)}")
    again = max(values.by_item["again"].values())
    longest = max(max(times.values()) for item, times in values.by_item.items() if item.startswith(SWITCH))
    aims = {
        f"Target: a ratio of at most {AIM_RATIO}": ratio.value <= AIM_RATIO,
        f"Target: under {AIM_AGAIN_S:g} s without changes": again < AIM_AGAIN_S,
        f"Target: at most {AIM_SWITCH_S:g} s for every switch": longest <= AIM_SWITCH_S,
    }
    report.data["aims"] = aims
    report.text("\n".join(f"{aim}: {'met' if met else 'missed'}" for aim, met in aims.items()))
    report.show()


if __name__ == "__main__":
    common.main(main)
