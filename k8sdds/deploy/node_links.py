"""Emulate the links of nodes of a deployed cluster: `k8sdds-link` forwards the packets of their network interface.

Rules of nftables divert the packets of this interface to two pairs of veths, between which the program forwards:

    interface, egress  → k8sdds-near → k8sdds-near-fw → k8sdds-link → k8sdds-far-fw → k8sdds-far → interface, egress
    interface, ingress → k8sdds-far → k8sdds-far-fw → k8sdds-link → k8sdds-near-fw → k8sdds-near → interface, ingress

The interface keeps its addresses, routes and queues. All of it belongs to a transient unit of systemd, which removes it
when it ends: at the end of a trial, when the program or its shell is killed, and after a deadline if this command is.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from k8sdds import nodes, versions
from k8sdds.deploy import profiles
from k8sdds.model.offloads import SEGMENTATION
from k8sdds.system.errors import PartFailed, PrerequisiteError
from k8sdds.system.ssh import Connections, Host

NEAR, FAR = "k8sdds-near-fw", "k8sdds-far-fw"
"""The interfaces between which `k8sdds-link` forwards: those of the node, and of the network."""
UNIT = "k8sdds-link.service"
FOLDER = "/run/k8sdds-link"
TCP_PORTS = (*versions.KUBERNETES_PORTS, 179)
"""Ports whose packets are not diverted, in addition to that of SSH: Kubernetes and its network must work meanwhile."""
UDP_PORTS = (123, 319, 320)
"""The same for NTP and PTP, because delays are compared with the clocks that they set."""
PROGRAMS = ("nft", "tc", "ethtool", "ctr", "systemd-run")
STARTS_S = 30

_DEVICE = r"""
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
[ -n "$DEVICE" ] || DEVICE=$({ ip -4 route show default; ip -6 route show default; } 2>/dev/null |
  sed -n '1s/.* dev \([^ ]*\).*/\1/p')
"""

# Packets that come back have a mark. The MAC address makes those for the node be for the node on `k8sdds-near`, too.
_INTERFACES = f"""
link=$(ip -oneline link show dev "$DEVICE")
mac=$(echo "$link" | sed -n 's#.*link/ether \\([^ ]*\\).*#\\1#p')
mtu=$(echo "$link" | sed 's/.* mtu \\([0-9]*\\).*/\\1/')
[ -n "$mac" ] || {{ echo "$DEVICE is no Ethernet interface" >&2; exit 1; }}
ip link add k8sdds-near mtu $mtu address $mac type veth peer name {NEAR} mtu $mtu
ip link add k8sdds-far mtu $mtu type veth peer name {FAR} mtu $mtu
for interface in k8sdds-near {NEAR} k8sdds-far {FAR}; do
  [ ! -e /proc/sys/net/ipv6 ] || echo 1 >/proc/sys/net/ipv6/conf/$interface/disable_ipv6
  # Each packet of the wire is lost or delayed on its own.
  ethtool -K $interface {" ".join(f"{name} off" for name in SEGMENTATION.features())}
  ip link set $interface up
done
tc qdisc add dev k8sdds-near clsact
tc qdisc add dev k8sdds-far clsact
tc filter add dev k8sdds-near ingress protocol all u32 match u32 0 0 action mirred ingress redirect dev "$DEVICE"
tc filter add dev k8sdds-far ingress protocol all u32 match u32 0 0 action mirred egress redirect dev "$DEVICE"
"""

_RULES = f"""
nft -f - <<END
table netdev k8sdds-link {{
  chain near {{ type filter hook egress device "{NEAR}" priority 0; meta mark set 0x6b386473; }}
  chain far {{ type filter hook egress device "{FAR}" priority 0; meta mark set 0x6b386473; }}
  chain up {{
    type filter hook egress device "$DEVICE" priority 0
    meta mark 0x6b386473 meta mark set 0 accept
    jump spared
    fwd to "k8sdds-near"
  }}
  chain down {{
    type filter hook ingress device "$DEVICE" priority 0
    meta mark 0x6b386473 meta mark set 0 accept
    jump spared
    fwd to "k8sdds-far"
  }}
  chain spared {{
    tcp dport {{ $TCP_PORTS }} accept
    tcp sport {{ $TCP_PORTS }} accept
    udp dport {{ {", ".join(map(str, UDP_PORTS))} }} accept
    udp sport {{ {", ".join(map(str, UDP_PORTS))} }} accept
  }}
}}
END
"""

_UNDO = f"""
{{
set +e
nft delete table netdev k8sdds-link
ip link delete k8sdds-near
ip link delete k8sdds-far
ctr --namespace k8s.io images unmount --rm {FOLDER}/root
rm -rf --one-file-system {FOLDER}
}} >/dev/null 2>&1
:
"""

# Waits for `begin`, then sends each state of the link at its time.
_OUTAGES = """{ read -r begin <&4 && awk '
  function now(time) { "date +%s.%N" | getline time; close("date +%s.%N"); return time }
  BEGIN { begun = now() }
  NF { left = begun + $1 - now(); if (left > 0) system("sleep " left); sub(/^[^ ]* /, ""); print; fflush() }
' schedule >commands; }"""

# The program is that of the image, which is built for the architecture of the node.
_RUN = f"""
cd {FOLDER}
mkdir root
ctr --namespace k8s.io images mount --rw "$IMAGE" root >/dev/null
cp configuration root/links.json
{_INTERFACES}
mkfifo commands states
exec 3<>commands 4<>states
chroot root /opt/k8sdds/k8sdds-link /links.json <commands >answers 2>messages &
link=$!
{_OUTAGES} &
until grep -q '^ready' messages; do kill -0 $link || {{ cat messages >&2; exit 1; }}; sleep 0.05; done
{_RULES}
: >ready
wait $link || :
cat messages >&2
"""

_CHECK = f"""
for program in {" ".join(PROGRAMS)}; do
  command -v $program >/dev/null || {{ echo "$program is not installed"; exit 0; }}
done
[ -z "$(tc filter show dev "$DEVICE" ingress 2>/dev/null)" ] || {{
  echo "another program handles the packets of $DEVICE first (tc filter show dev $DEVICE ingress)"; exit 0
}}
export DEVICE TCP_PORTS=22
# In a network namespace of its own: what is missing fails there.
unshare --net sh -e 2>&1 >/dev/null <<'END_OF_CHECK' | head -n 1
ip link add name "$DEVICE" type veth peer name other
{_INTERFACES}{_RULES}
END_OF_CHECK
"""

_STOP = f"""
systemctl stop {UNIT} 2>/dev/null
({_UNDO})
ls -d {FOLDER} /sys/class/net/k8sdds-near /sys/class/net/k8sdds-far 2>/dev/null
nft list table netdev k8sdds-link 2>/dev/null
:
"""

# The answer, and then the time since 1970.
_ASK = f"""
cd {FOLDER} || exit 1
before=$(wc -l <answers)
echo '%s' >commands
until [ "$(wc -l <answers)" -gt "$before" ]; do [ -e ready ] || exit 1; sleep 0.01; done
tail -n 1 answers
date +%%s%%N
"""

_BEGIN = f"cd {FOLDER} && echo begin >states\n"

# All answers: the last one, in one line of JSON, are the statistics.
_STATISTICS = f"""
cd {FOLDER} || exit 1
echo stop >commands
until [ "$(tail -c 2 answers)" = "}}" ]; do [ -e ready ] || exit 1; sleep 0.01; done
cat answers
"""


@dataclass(frozen=True)
class Emulation:
    """What to emulate on a node."""

    configuration: Mapping[str, Any]
    """The configuration of `k8sdds-link`, between the interfaces NEAR and FAR."""
    peers: Sequence[str] = ()
    """Addresses of the other nodes of the trial, which are reached over the emulated link."""
    states: Sequence[tuple[int, str]] = ()
    """States of the link in its outages, each with its time after `NodeLinks.begin`, in µs."""


class NodeLinks:
    """The emulated links of some nodes, while `emulated` lasts."""

    def __init__(self, connections: Connections, emulations: Mapping[str, Emulation]) -> None:
        self._connections = connections
        self._states = {node: [state for _, state in its.states] for node, its in emulations.items()}
        """States of each node's link, in the order of the answers."""
        self._clocks_us: dict[str, int] = {}

    def start(self) -> None:
        """Begin all random decisions and the statistics. Call it once.

        Raises:
            PartFailed: The program on a node has ended.
            PrerequisiteError: It is of another version.
        """
        for node, printed in self._each(_ASK % "start").items():
            answer, now_ns = printed.split()
            if not answer.isdecimal():
                raise PrerequisiteError(
                    f"{node}: k8sdds-link in the image is of another version: it answered {answer!r}",
                    "use the image of this version of k8sdds: k8sdds images load",
                )
            self._clocks_us[node] = int(now_ns) // 1000 - int(answer)

    def begin(self) -> None:
        """Let the outages of all links begin. Raises like `start`."""
        self._each(_BEGIN)

    def interrupt(self, node: str, state: str) -> int:
        """Change the state of a node's link, or end its outage with `off`.

        Returns:
            When, by CLOCK_MONOTONIC of the node, in µs.

        Raises:
            PartFailed: As `start`.
        """
        self._states[node].append(state)
        answer = _answer(_ASK % f"outage {node} {state}", self._connections.hosts[node])
        return int(answer.split()[0])

    def stop(self) -> dict[str, dict[str, Any]]:
        """Return the statistics of each node since `start` (docs/reference/link-emulator.md), with more keys.

        `outages` has all states of its link, and `clock_us` is the difference between the time since 1970 and
        CLOCK_MONOTONIC. Empty without `start`. Raises like `start`.
        """
        found = {}
        for node, printed in self._each(_STATISTICS).items() if self._clocks_us else ():
            started, *moments, statistics = printed.splitlines()
            states = zip(moments, self._states[node], strict=False)
            outages = [
                {"node": node, "at_us": int(moment) - int(started), "state": state}
                for moment, state in states
            ]
            found[node] = json.loads(statistics) | {"outages": outages, "clock_us": self._clocks_us[node]}
        return found

    def _each(self, script: str) -> dict[str, str]:
        return self._connections.all(partial(_answer, script), self._states)


@contextlib.contextmanager
def emulated(
    cluster: str, emulations: Mapping[str, Emulation], image: str, at_most_s: float
) -> Iterator[NodeLinks]:
    """Emulate the links of nodes until the end of the block.

    Args:
        cluster: Name of a deployed cluster.
        emulations: What to emulate on each node.
        image: Image of k8sdds that the nodes have, with the program.
        at_most_s: The nodes restore themselves after this time.

    Raises:
        PrerequisiteError: A node cannot emulate its link, or does not restore it.
    """
    profile, names = profiles.deployed(cluster), list(emulations)
    with Connections(profiles.targets(profile, names)) as connections:

        def start(host: Host) -> None:
            emulation = emulations[host.name]
            settings = _settings(
                profile.network.interface, _ssh_port(host), image, at_most_s, emulation.peers
            )
            done = host.run(_start(settings, emulation), timeout_s=STARTS_S)
            if done.code:
                raise PrerequisiteError(
                    f"{host.name}: cannot emulate its link: {_reason(done.err)}",
                    "leave out `link`, or use --testbed lab",
                )

        try:
            connections.all(start, names)
            for name in names if profile.provider == "local" else ():
                nodes.give_real_time_priority(cluster, name, UNIT)
            yield NodeLinks(connections, emulations)
        finally:
            _restore(connections, names)


def unsupported(cluster: str) -> dict[str, str]:
    """Return why nodes of a cluster cannot emulate their link, by node. Changes nothing."""
    profile = profiles.deployed(cluster)
    script = _settings(profile.network.interface) + _CHECK
    with Connections(profiles.targets(profile)) as connections:
        printed = connections.all(lambda host: host.run(script).out, [node.name for node in profile.nodes])
    return {node: text.strip() for node, text in printed.items() if text.strip()}


def _start(settings: str, emulation: Emulation) -> str:
    states = "\n".join(f"{at_us / 1e6:.6f} outage * {state}" for at_us, state in emulation.states)
    return f"""
set -e
systemctl stop {UNIT} 2>/dev/null || :
({_UNDO})
mkdir -m 700 {FOLDER}
cd {FOLDER}
cat >configuration <<'END_OF_CONFIGURATION'
{json.dumps(emulation.configuration)}
END_OF_CONFIGURATION
cat >schedule <<'END_OF_SCHEDULE'
{states}
END_OF_SCHEDULE
cat >undo <<'END_OF_UNDO'
{_UNDO}
END_OF_UNDO
cat >run <<'END_OF_RUN'
{{
{settings}
{_RUN}
}}
END_OF_RUN
{settings}
for peer in $PEERS; do
  case "$(ip -oneline route get "$peer") " in
    *" dev $DEVICE "*) ;;
    *) echo "packets to $peer do not leave by $DEVICE: set network.interface in the profile" >&2; exit 1 ;;
  esac
done
systemd-run --quiet --collect --unit={UNIT} --property=TimeoutStopSec=5 --property=Nice=-20 \\
  --property="RuntimeMaxSec=$AT_MOST_S" \\
  --property="ExecStopPost=/bin/sh {FOLDER}/undo" /bin/sh -e {FOLDER}/run
until [ -e ready ]; do
  systemctl --quiet is-active {UNIT} || {{
    journalctl --quiet --unit={UNIT} --output=cat --lines=20 | grep -v systemd >&2
    exit 1
  }}
  sleep 0.05
done
"""


def restore(cluster: str, dry_run: bool) -> list[str]:
    """Restore the links that a killed command has left emulated, and return the nodes.

    Raises:
        PrerequisiteError: A node does not restore its link.
    """
    profile = profiles.deployed(cluster)
    with Connections(profiles.targets(profile)) as connections:
        find = f"ls -d {FOLDER} 2>/dev/null || :"
        found = connections.all(lambda host: host.run(find).out, [node.name for node in profile.nodes])
        names = [name for name, text in found.items() if text]
        if not dry_run:
            _restore(connections, names)
    return names


def restore_script() -> str:
    """Return a script that ends the emulation of a link, if there is one, and prints what is left of it."""
    return f"({_STOP})\n"


def _restore(connections: Connections, names: Sequence[str]) -> None:
    printed = connections.all(lambda host: host.run(restore_script()).out, names)
    if left := [f"{name}: {' '.join(text.split())}" for name, text in printed.items() if text.strip()]:
        raise PrerequisiteError(
            f"what emulated links was not removed: {'; '.join(left)}", f"stop the unit {UNIT} on this machine"
        )


def _settings(
    interface: str | None,
    ssh_port: str = "",
    image: str = "",
    at_most_s: float = 0,
    peers: Sequence[str] = (),
) -> str:
    ports = ", ".join(dict.fromkeys(filter(None, (*map(str, TCP_PORTS), ssh_port))))
    variables = {
        "DEVICE": interface or "",
        "IMAGE": image,
        "TCP_PORTS": ports,
        "AT_MOST_S": f"{at_most_s:.0f}",
        "PEERS": " ".join(peers),
    }
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items()) + _DEVICE


def _ssh_port(host: Host) -> str:
    """Return the port on which the machine's SSH server listens. It is another one than ours behind a router."""
    return host.run('echo "${SSH_CONNECTION##* }"', root=False).out.strip()


def _answer(script: str, host: Host) -> str:
    done = host.run(script, timeout_s=STARTS_S)
    if done.code:
        raise PartFailed(f"{host.name}: k8sdds-link has ended: {_reason(done.err)}")
    return done.out


def _reason(text: str) -> str:
    return " ".join(text.split())[-300:] or "no message"
