"""Connect a cluster's nodes: a bridge in the holder's network namespace, and a veth link per node."""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from k8sdds.model.ip_families import IpFamily
from k8sdds.networks.datapath import SWITCH_SYSCTLS
from k8sdds.nodes.records import ClusterRecord, MachineRecord
from k8sdds.system import processes
from k8sdds.system.errors import InputError
from k8sdds.system.sandbox import Sandbox

PREFIXES: dict[IpFamily, str] = {"ipv4": "10.88.0.", "ipv6": "fd00:10:88::"}
"""Start of the addresses of switch and nodes, which a decimal number completes."""
_LENGTHS: dict[IpFamily, int] = {"ipv4": 24, "ipv6": 64}
GATEWAY = 1
"""Number of the switch."""
FIRST_NUMBER = 11
LOOPBACK = "127.0.0.1"
HOLDER = "holder"
"""File in a cluster's data folder with the id and start time of its holder, for cleanup without a record."""


def _with_length(family: IpFamily, number: int) -> str:
    return f"{PREFIXES[family]}{number}/{_LENGTHS[family]}"


# Without `nodad`, an IPv6 address cannot be used for the first second.
_SWITCH = f"""\
ip link set lo up
ip link add switch type bridge
ip addr add {_with_length("ipv4", GATEWAY)} dev switch
ip link set switch up
ip route add unreachable default
if [ -e /proc/sys/net/ipv6 ]; then
  ip addr add {_with_length("ipv6", GATEWAY)} dev switch nodad
  ip -6 route add unreachable default
  sysctl -qw net.ipv6.conf.all.forwarding=1
fi
sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.default.send_redirects=0
[ ! -e /proc/sys/net/bridge ] || sysctl -qw {" ".join(f"{key}={value}" for key, value in SWITCH_SYSCTLS.items())}
"""
# The switch has no route to other networks, so packets to other addresses are rejected at once.


def create(record: ClusterRecord) -> Sandbox:
    """Return a cluster's sandbox; create it with the switch if it does not run. It outlives k8sdds."""
    if record.alive:
        return sandbox_of(record)
    sandbox = Sandbox(record.cluster)
    record.holder = (sandbox.pid, processes.start_time(sandbox.pid))
    record.write()
    (Path(record.data) / HOLDER).write_text(f"{sandbox.pid} {processes.start_time(sandbox.pid)}")
    sandbox.detach()
    sandbox.run(["sh", "-e"], stdin=_SWITCH)
    return sandbox


def sandbox_of(record: ClusterRecord) -> Sandbox:
    """Return the sandbox of a running cluster."""
    if not record.alive:
        raise InputError(
            f"the cluster {record.cluster!r} does not run",
            "start it with k8sdds nodes up, or remove it with down",
        )
    return Sandbox.attach(record.cluster, record.holder[0])


def free_address(record: ClusterRecord, family: IpFamily) -> str:
    """Return an unused address of the cluster."""
    taken = {_number(machine) for machine in record.machines.values()}
    for number in range(FIRST_NUMBER, 255):
        if number not in taken:
            return f"{PREFIXES[family]}{number}"
    raise InputError("a cluster can have at most 244 nodes", "create another one with --cluster")


def _number(machine: MachineRecord) -> int:
    return int(re.split("[.:]", machine.address)[-1])


def addresses(machine: MachineRecord) -> list[str]:
    """Return the addresses of a node: one of each of its families."""
    return [f"{PREFIXES[family]}{_number(machine)}" for family in machine.spec.ip_families]


def mac(machine: MachineRecord) -> str:
    """Return the MAC address of a node, which is the same after each boot because other nodes cache it."""
    return f"02:88:0a:58:00:{_number(machine):02x}"


def _configuration(machine: MachineRecord) -> Sequence[str]:
    """Return the commands that give a node its addresses and default routes."""
    lines = []
    for family in machine.spec.ip_families:
        options = " nodad" if family == "ipv6" else ""
        lines.append(f"addr add {_with_length(family, _number(machine))} dev eth0{options}")
        lines.append(f"route add default via {PREFIXES[family]}{GATEWAY}")
    return [f"ip -n {machine.spec.name} {line}\n" for line in lines]


def link_script(machine: MachineRecord) -> str:
    """Return the script that creates a node's network namespace and its link to the switch."""
    name, link = machine.spec.name, machine.spec.link
    shape = ""
    if link.delay_ms:
        rate = f" rate {link.rate_mbps}mbit" if link.rate_mbps else ""
        shape = f"tc qdisc replace dev {name} root netem limit 10000 delay {link.delay_ms}ms{rate}\n"
    elif link.rate_mbps:
        # A queue of 50 ms, and a burst of at least one timer tick (250 Hz) at the given rate.
        burst = max(16384, round(link.rate_mbps * 1e6 / 8 / 250))
        shape = f"tc qdisc replace dev {name} root tbf rate {link.rate_mbps}mbit burst {burst} latency 50ms\n"
    return f"""\
ip netns add {name}
ip link add name {name} mtu {link.mtu} type veth peer name eth0 mtu {link.mtu} netns {name}
ip link set dev {name} master switch up
ip -n {name} link set dev eth0 address {mac(machine)}
ip -n {name} link set dev lo up
ip -n {name} link set dev eth0 up
{"".join(_configuration(machine))}{shape}"""


def proxy(record: ClusterRecord, address: str, port: int) -> list[str]:
    """Return the command that connects stdin and stdout to a port of a node."""
    pid, started = record.holder
    program = Path(__file__).with_name("pipe.py")
    return [sys.executable, "-IS", str(program), str(pid), str(started), address, str(port)]


def forward(record: ClusterRecord, name: str, port: int, local_port: int = 0) -> int:
    """Start a process that forwards connections, unless one runs. It ends with the cluster.

    Return the port of this machine: `local_port` if it is free and not 0.
    """
    sandbox = sandbox_of(record)
    program = proxy(record, record.machines[name].address, port)
    if local_port and _runs([*program, str(local_port)]):
        return local_port
    try:
        listener = socket.create_server((LOOPBACK, local_port))
    except OSError:
        # Another program now uses the port.
        listener = socket.create_server((LOOPBACK, 0))
    with listener:
        local_port = listener.getsockname()[1]
        # The program runs in the PID namespace of the nodes, so that the kernel ends it together with them.
        subprocess.Popen(
            ["nsenter", "--target", str(sandbox.pid), "--pid", "--", *program, str(local_port)],
            stdin=listener.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    return local_port


def _runs(argv: list[str]) -> bool:
    expected = "".join(f"{word}\0" for word in argv).encode()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        # A process may end at this moment.
        with contextlib.suppress(OSError):
            if path.read_bytes() == expected:
                return True
    return False
