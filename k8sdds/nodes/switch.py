"""What lies between a cluster's machines: a bridge in the holder's network namespace, and their cables."""

from __future__ import annotations

import sys
from pathlib import Path

from k8sdds.nodes.record import Machine, Record
from k8sdds.system import processes
from k8sdds.system.errors import InputError
from k8sdds.system.sandbox import Sandbox

NETWORK = "10.88.0"
FIRST_ADDRESS = 11
HOLDER = "holder"
"""File in a cluster's data: id and start time of its holder, for who finds the data without a record."""

_SWITCH = f"""\
ip link set lo up
ip link add switch type bridge
ip addr add {NETWORK}.1/24 dev switch
ip link set switch up
ip route add unreachable default
sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.default.send_redirects=0
[ ! -e /proc/sys/net/bridge/bridge-nf-call-iptables ] || sysctl -qw net.bridge.bridge-nf-call-iptables=0
"""
# Unknown addresses are unreachable at once and nothing can leave: the switch knows no way out.


def make(known: Record) -> Sandbox:
    """The cluster's switch, made if it does not stand; it outlives this process."""
    if known.alive:
        return sandbox_of(known)
    sandbox = Sandbox(known.cluster)
    known.holder = (sandbox.pid, processes.start_time(sandbox.pid))
    known.write()
    (Path(known.data) / HOLDER).write_text(f"{sandbox.pid} {processes.start_time(sandbox.pid)}")
    sandbox.detach()
    sandbox.run(["sh", "-e"], stdin=_SWITCH)
    return sandbox


def sandbox_of(known: Record) -> Sandbox:
    """The sandbox that holds a cluster; InputError if it has ended."""
    if not known.alive:
        raise InputError(f"the cluster {known.cluster!r} does not stand any more", "k8sdds nodes up, or down")
    return Sandbox.attach(known.cluster, known.holder[0])


def free_address(known: Record) -> str:
    """An address that no machine of the cluster has."""
    taken = {machine.address for machine in known.machines.values()}
    for last in range(FIRST_ADDRESS, 255):
        if f"{NETWORK}.{last}" not in taken:
            return f"{NETWORK}.{last}"
    raise InputError("a cluster has at most 244 nodes", "make another: --cluster")


def mac(machine: Machine) -> str:
    """The hardware address of a machine: the same after each boot, as others remember it."""
    return "02:88:" + ":".join(f"{int(part):02x}" for part in machine.address.split("."))


def cable(machine: Machine) -> str:
    """The script that makes a machine's network namespace and plugs its cable in."""
    name, link = machine.spec.name, machine.spec.link
    shape = ""
    if link.delay_ms:
        rate = f" rate {link.rate_mbps}mbit" if link.rate_mbps else ""
        shape = f"tc qdisc replace dev {name} root netem limit 10000 delay {link.delay_ms}ms{rate}\n"
    elif link.rate_mbps:
        # 50 ms of queue, and a burst that a tick of the slowest kernels can carry.
        burst = max(16384, round(link.rate_mbps * 1e6 / 8 / 250))
        shape = f"tc qdisc replace dev {name} root tbf rate {link.rate_mbps}mbit burst {burst} latency 50ms\n"
    return f"""\
ip netns add {name}
ip link add name {name} mtu {link.mtu} type veth peer name eth0 mtu {link.mtu} netns {name}
ip link set dev {name} master switch up
ip -n {name} link set dev eth0 address {mac(machine)}
ip -n {name} link set dev lo up
ip -n {name} link set dev eth0 up
ip -n {name} addr add {machine.address}/24 dev eth0
ip -n {name} route add default via {NETWORK}.1
{shape}"""


def proxy(known: Record, address: str, port: int) -> list[str]:
    """The command that connects stdin and stdout to a port of a machine."""
    pid, started = known.holder
    program = Path(__file__).with_name("pipe.py")
    return [sys.executable, "-IS", str(program), str(pid), str(started), address, str(port)]
