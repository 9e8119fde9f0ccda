"""What `k8sdds deploy` costs beside the same kubeadm commands typed by hand.

Three local nodes, made before the clock runs, with the bundle and its archives of images in reach. In turns

  deploy   `k8sdds deploy PROFILE --yes`: from facts to three Ready nodes and a passed smoke test. The smoke
           test is told apart, since by hand nobody makes one.
  by hand  the shortest sequence that ends with three Ready nodes: on all nodes side by side programs,
           containerd's configuration and images; then kubeadm init, the network, kubeadm join on both workers
           side by side, and waiting until all are Ready. No checks, no records, nothing that could undo it;
           and its connections to the nodes stand before the clock runs.

The ratio of the two, without the smoke test, is the figure (aim: at most 1.15). After each deploy a second
one, which finds nothing to do (aim: under 3 s), and `k8sdds status`; at the end the facts of 20 hosts (sshd
in namespaces), gathered side by side. Root only.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

import common

from k8sdds import nodes
from k8sdds.bundle.create import ARCH_HERE
from k8sdds.deploy import deploy as flow
from k8sdds.deploy import facts, network_install, plan, profiles, software
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.phases import control_plane, kubernetes, runtime
from k8sdds.kubernetes import apply
from k8sdds.kubernetes.kubectl import KUBECONFIG
from k8sdds.model.profile import Profile
from k8sdds.system.ssh import Connections

AIM_RATIO, AIM_AGAIN_S = 1.15, 3.0
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
K8SDDS = Path(sys.prefix) / "bin" / "k8sdds"
SMOKE = re.compile(r"^head: smoke test: .* \(([0-9.]+) s\)$", re.MULTILINE)
ADMIN = f"export KUBECONFIG={KUBECONFIG}\n"


def timed(*words: str | Path) -> tuple[float, str]:
    """Seconds of a command of k8sdds, and what it said."""
    began = time.perf_counter()
    done = subprocess.run([K8SDDS, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    took = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"k8sdds {words[0]} failed: {done.stdout}{done.stderr}")
    return took, done.stdout


def stand(path: Path) -> None:
    """Make the nodes anew, without a cluster on them, and the archives of images where there are none yet."""
    timed("destroy", path, "--yes")
    profile = profiles.load(str(path))
    found = flow.create_machines(profile, common.say)
    assert found is not None
    needed = network_install.install(profile).images
    for images in (found.images(ARCH_HERE, True, needed), found.images(ARCH_HERE, False, needed)):
        found.archive(images)
    found.archive(found.own_images(ARCH_HERE))


def deploy(path: Path) -> dict[str, float]:
    """Seconds of a deploy without its smoke test, of the smoke test, of a second deploy and of status."""
    took, said = timed("deploy", path, "--yes")
    found = SMOKE.search(said)
    if found is None:
        raise SystemExit(f"no smoke test: {said}")
    smoke = float(found[1])
    again, said = timed("deploy", path, "--yes")
    if said != "no changes\n":
        raise SystemExit(f"a second deploy changed something: {said}")
    status, _ = timed("status", path)
    return {"deploy": took - smoke, "smoke test": smoke, "again": again, "status": status}


class ByHand:
    """Somebody who has written down the commands and files, and types them as fast as can be."""

    def __init__(self, profile: Profile, connections: Connections) -> None:
        self.profile = profile
        self.connections = connections
        seen, _ = facts.gather(connections, plan.SYSCTLS)
        self.software = software.of(profile, (ARCH_HERE,), common.say)
        self.wanted = DesiredState(profile, seen, self.software, network_install.install(profile))

    def ssh(self, node: str, script: str) -> str:
        done = self.connections.hosts[node].run(f"set -e\n{script}", timeout_s=600)
        if done.code:
            raise SystemExit(f"{node} by hand: {done.err or done.out}")
        return done.out

    def prepare(self, node: str) -> str:
        """The commands that make a bare node ready for kubeadm."""
        here = self.profile.node(node)
        lines = [f"install -D {one.shared} {one.target}\n" for one in self.software.binaries(ARCH_HERE)]
        lines += [f"ln -sf {target} {link}\n" for link, target in self.software.links(ARCH_HERE).items()]
        for path, text in (
            (runtime.CONFIG_FILE, runtime.containerd_config(self.wanted, here)),
            (kubernetes.UNIT_FILE, kubernetes.UNIT),
            (kubernetes.DROP_IN_FILE, kubernetes.DROP_IN),
        ):
            lines.append(f"mkdir -p {PurePosixPath(path).parent}\n{written(path, text)}")
        images = self.software.images(ARCH_HERE, here.is_control_plane, self.wanted.network.images)
        settings = " ".join(f"{key}={value}" for key, value in runtime.SYSCTLS.items())
        return "".join(lines) + (
            f"sysctl -qw {settings}\nsystemctl daemon-reload\nsystemctl enable kubelet 2>/dev/null\n"
            "systemctl restart containerd\nuntil ctr version >/dev/null 2>&1; do sleep 0.1; done\n"
            f"ctr --namespace k8s.io images import {self.software.archive(images).shared} >/dev/null\n"
        )

    def seconds(self) -> float:
        """From bare nodes to a cluster whose nodes are Ready."""
        head, workers = self.wanted.control_plane, [node.name for node in self.wanted.workers()]
        scripts = {node: self.prepare(node) for node in (head, *workers)}
        manifests = written("/root/network.json", apply.list_document(self.wanted.network.manifests))
        init = (
            written("/root/init.yaml", control_plane.configuration(self.wanted))
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
    """Shell words that write a file."""
    return f"cat >{path} <<'END_OF_FILE'\n{text}END_OF_FILE\n"


def by_hand(path: Path) -> float:
    """Seconds of the shortest sequence of commands, on nodes that stand."""
    profile = profiles.load(str(path))
    with Connections(profiles.targets(profile)) as connections:
        return ByHand(profile, connections).seconds()


def gather(count: int, path: Path) -> float:
    """Seconds to connect to so many hosts and gather their facts."""
    made = nodes.up("hosts", [nodes.NodeSpec(f"host{number}", boot="sshd") for number in range(count)])
    try:
        names = ", ".join(f"{{name: {one.name}}}" for one in made[1:])
        path.write_text(
            f"name: hosts\naccess: {{ssh_config: {made[0].ssh_config}}}\n"
            f"nodes: [{{name: host0, roles: [control-plane]}}, {names}]\n"
        )
        targets = profiles.targets(profiles.load(str(path)))
        began = time.perf_counter()
        with Connections(targets) as connections:
            seen, failures = facts.gather(connections, plan.SYSCTLS, plan.FILES)
        took = time.perf_counter() - began
        if failures or len(seen) != count:
            raise SystemExit(f"facts of hosts: {failures}")
        return took
    finally:
        nodes.down("hosts")


def main() -> int:
    options = common.parse(common.parser(__doc__, common.Defaults(pairs=3, quick_pairs=1)))
    if os.geteuid() != 0:
        raise SystemExit("local nodes need root")
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
                stand(path)
                found = deploy(path) if what == "deploy" else {"by hand": by_hand(path)}
                for thing, seconds in found.items():
                    values.add(thing, number, seconds)
                common.say(", ".join(f"{thing} {seconds:.1f} s" for thing, seconds in found.items()))
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
    """The result, as people or programs read it."""
    rows = []
    for thing, title in TITLES.items():
        all_ = list(values.of[thing].values())
        each = " ".join(common.number(one, 2) for one in all_)
        rows.append((title, common.number(values.median(thing), 2), each))
        report.data[thing] = all_
    report.text(common.table(("seconds", "median", "each"), rows))
    ratio = values.ratio("deploy", "by hand")
    assert ratio is not None
    report.data["ratio"] = ratio.json()
    report.text(f"RATIO of deploy to kubeadm by hand: {ratio.describe()}")
    again = max(values.of["again"].values())
    aims = {
        f"Aim of a ratio of at most {AIM_RATIO}": ratio.median <= AIM_RATIO,
        f"Aim of under {AIM_AGAIN_S:g} s for no changes": again < AIM_AGAIN_S,
    }
    report.data["aims"] = aims
    report.text("\n".join(f"{aim}: {'met' if met else 'missed'}" for aim, met in aims.items()))
    report.show()


if __name__ == "__main__":
    common.main(main)
