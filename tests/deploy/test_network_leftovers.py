"""Find and remove what networks create, on a real local node, without touching anything else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from k8sdds import nodes
from k8sdds.deploy.network_switch import footprint, node_state
from k8sdds.deploy.network_switch.footprint import NetworkLeftover
from k8sdds.deploy.network_switch.node_state import NodeState

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="local nodes need root")

CLUSTER = f"left-{os.getpid()}"
NODE = "node1"
OWN = "10.88.0.11"
PEER = "10.88.0.12"
PODS = IPv4Network("10.244.0.0/16")
RECORDED = Path(__file__).parents[1] / "unit" / "recorded"

NETWORKS = Path(__file__).parent / "networks"
"""What each network creates on a node, and what others do, as scripts."""
MIN_LEFTOVERS = {
    "flannel-vxlan": 17, "flannel-hostgw": 5, "flannel-ipsec": 4, "flannel-wireguard": 3, "kube-router": 22,
    "weavenet-encrypt": 17, "host": 5, "calico-ipip": 16, "cilium-vxlan": 15,
}  # fmt: skip
"""Minimum number of leftovers to find for each network."""
RULES = {"kube-router": "KUBE-(ROUTER|POD-FW|NWPLCY)-|kube-bridge|kube-router|node port traffic"}
"""The recorded rules and chains of a real daemon that a network creates, too, as a pattern."""


def created(name: str) -> str:
    """Return the script that creates what a network does."""
    script = (NETWORKS / f"{name}.sh").read_text()
    if name not in RULES:
        return script
    text = (RECORDED / f"traces-{name}.txt").read_text()
    lines = [line.partition("\t")[2] for line in text.splitlines() if line.startswith("iptables-nft\t")]
    rules = [line for line in lines if re.search(RULES[name], line) or line[:1] == "*" or line == "COMMIT"]
    return "\n".join([f"{script}iptables-nft-restore --noflush <<'RULES'", *rules, "RULES"])


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Start a machine with Debian's iptables, nft and ipset, and configure what must stay."""
    state = tmp_path_factory.mktemp("state")
    state.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("K8SDDS_STATE_DIR", str(state))
        nodes.up(CLUSTER, [nodes.NodeSpec(NODE, boot="sshd")])
        try:
            shell((NETWORKS / "others.sh").read_text())
            yield
        finally:
            nodes.down(CLUSTER)


def shell(script: str) -> str:
    return nodes.run(CLUSTER, NODE, ["sh", "-e"], stdin=script)


def probe() -> NodeState:
    return node_state.parse(shell(footprint.probe_script()))


def remove(items: list[NetworkLeftover]) -> None:
    # Without -e, as in a cleanup: deleting one end of a veth pair deletes the other end, too.
    nodes.run(CLUSTER, NODE, ["sh"], stdin=footprint.removal_script(items))


def stable(state: NodeState) -> NodeState:
    """Drop what changes over time: timers of bridges, and link-local addresses."""
    links = tuple(
        {key: link.get(key) for key in ("ifname", "mtu", "master", "link_type")} for link in state.links
    )
    return replace(
        state, links=links, routes=tuple(route for route in state.routes if ":" not in route["dst"])
    )


def leftovers(state: NodeState, *names: str) -> list[NetworkLeftover]:
    return footprint.leftovers(state, [OWN, PEER], [PODS], names or None)


@pytest.mark.parametrize("name", MIN_LEFTOVERS)
def test_exactly_what_a_network_created_is_found_and_removed(node: None, name: str) -> None:
    before = probe()
    assert before.missing_programs == () and leftovers(before) == []
    shell(created(name))
    remaining = leftovers(probe(), name)
    assert len(remaining) >= MIN_LEFTOVERS[name], [str(leftover) for leftover in remaining]
    assert leftovers(probe()) == remaining
    remove(remaining)
    after = probe()
    assert leftovers(after) == []
    # Links, routes, rules, sets, policies and files of the owner are unchanged.
    assert stable(after) == stable(before)


@pytest.mark.long
def test_a_leftover_that_cannot_be_removed_is_still_reported(node: None) -> None:
    """The device is no Open vSwitch device, and the node has no containerd to run weaveutil."""
    shell("ip link add datapath type bridge")
    try:
        (device,) = leftovers(probe(), "weavenet")
        remove([device])
        assert leftovers(probe(), "weavenet") == [device]
    finally:
        shell("ip link delete datapath")


def test_removing_twice_succeeds(node: None) -> None:
    shell(created("host"))
    remaining = leftovers(probe())
    remove(remaining)
    remove(remaining)
    assert leftovers(probe()) == []


def test_an_agent_that_still_listens_is_found(node: None) -> None:
    shell(
        "timeout 120 socat TCP-LISTEN:179 - >/dev/null 2>&1 </dev/null &\n"
        "for try in $(seq 600); do ss -Htln 'sport = :179' | grep -q . && exit; sleep 0.1; done; exit 1"
    )
    assert [str(leftover) for leftover in leftovers(probe(), "kube-router")] == ["port 179"]


@pytest.mark.skipif(shutil.which("clang") is None, reason="needs clang: k8sdds setup --for lab-cilium")
def test_programs_of_cilium_at_tc_are_removed_and_others_stay(tmp_path: Path) -> None:
    """Real BPF programs with Cilium's name and with another name, in namespaces of the test.

    tc mounts the BPF file system where it is missing.
    """
    for name in ("cil_from_netdev", "mine"):
        source = f"""__attribute__((section("tc"), used)) int {name}(void *packet) {{ return 0; }}
char licenses[] __attribute__((section("license"), used)) = "GPL";
"""
        compiled = str(tmp_path / f"{name}.o")
        argv = ["clang", "-O2", "-g", "-target", "bpf", "-x", "c", "-", "-c", "-o", compiled]
        subprocess.run(argv, input=source.encode(), check=True, timeout=60)
    holder = ["unshare", "--net", "--mount", "sh", "-c", "echo ready; exec sleep 60"]
    with subprocess.Popen(holder, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()

        def run(script: str) -> str:
            argv = ["nsenter", "--net", "--mount", f"--target={process.pid}", "sh"]
            return subprocess.run(argv, input=script, text=True, capture_output=True, timeout=60).stdout

        try:
            run(f"""
ip link add one type veth peer name two
tc qdisc add dev one clsact
tc qdisc add dev two clsact
tc filter add dev one ingress bpf direct-action object-file {tmp_path}/cil_from_netdev.o section tc
tc filter add dev two egress pref 7 bpf direct-action object-file {tmp_path}/cil_from_netdev.o section tc
tc filter add dev two ingress bpf direct-action object-file {tmp_path}/mine.o section tc
""")
            found = leftovers(node_state.parse(run(footprint.probe_script())))
            assert [str(leftover) for leftover in found] == [
                "BPF program cil_from_netdev at egress of two",
                "BPF program cil_from_netdev at ingress of one",
            ]
            run(footprint.removal_script(found))
            state = node_state.parse(run(footprint.probe_script()))
            assert [(link, name) for link, _, _, name in state.bpf_programs] == [("two", "mine")]
            assert run("tc qdisc show | grep clsact | cut -d' ' -f5").split() == ["two"]
        finally:
            process.kill()
