"""Write the scripts that emulate the link of a node of a cluster, and end it.

Rules of nftables divert the packets of the node's network interface to two pairs of veths, between which `k8sdds-link`
forwards:

    interface, egress  → k8sdds-near → k8sdds-near-fw → k8sdds-link → k8sdds-far-fw → k8sdds-far → interface, egress
    interface, ingress → k8sdds-far → k8sdds-far-fw → k8sdds-link → k8sdds-near-fw → k8sdds-near → interface, ingress

The interface keeps its addresses, routes and queues. All of it belongs to a transient unit of systemd, which removes it
when it ends: at the end of a trial, when the program or its shell is killed, and after a deadline if the command is.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from k8sdds import versions
from k8sdds.model.offloads import SEGMENTATION

NEAR, FAR = "k8sdds-near-fw", "k8sdds-far-fw"
"""The interfaces between which `k8sdds-link` forwards: those of the node, and of the network."""
UNIT = "k8sdds-link.service"
FOLDER = "/run/k8sdds-link"
LOCK = "/run/systemd"
"""Folder that a script locks while it starts or ends the emulation: it continues when its connection breaks."""
LOCKED_S = 20
"""How long a script waits for the end of another one."""
TCP_PORTS = (*versions.KUBERNETES_PORTS, 179)
"""Ports whose packets are not diverted, in addition to that of SSH: Kubernetes and its network must work meanwhile."""
UDP_PORTS = (123, 319, 320)
"""The same for NTP and PTP, because delays are compared with the clocks that they set."""
PROGRAMS = ("nft", "tc", "ethtool", "ctr", "setpriv", "systemd-run")
_CAPABILITIES = "-all,+net_raw,+net_admin,+sys_nice,+sys_chroot"
"""The rights of `k8sdds-link`, which is a program of an image."""

_DEVICE = r"""
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
[ -n "$DEVICE" ] || DEVICE=$({ ip -4 route show default; ip -6 route show default; } 2>/dev/null |
  sed -n '1s/.* dev \([^ ]*\).*/\1/p')
"""

# These mistakes last, so that `CHECK` must find them before the first trial.
_DEVICE_CHECK = """
[ -n "$DEVICE" ] || { echo "there is no default route: set network.interface in the profile" >&2; exit 1; }
case "$(ip -oneline link show dev "$DEVICE")" in
  *link/ether*) ;;
  *) echo "$DEVICE is not an Ethernet interface" >&2; exit 1 ;;
esac
for peer in $PEERS; do
  case "$(ip -oneline route get "$peer") " in
    *" dev $DEVICE "*) ;;
    *) echo "packets to $peer do not leave by $DEVICE: set network.interface in the profile" >&2; exit 1 ;;
  esac
done
"""

# Packets that come back have a mark. The MAC address makes those for the node be for the node on `k8sdds-near`, too.
_INTERFACES = f"""
link=$(ip -oneline link show dev "$DEVICE")
mac=$(echo "$link" | sed -n 's#.*link/ether \\([^ ]*\\).*#\\1#p')
mtu=$(echo "$link" | sed 's/.* mtu \\([0-9]*\\).*/\\1/')
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
# Without an answer of containerd, the next start removes the snapshot.
timeout 3 ctr --namespace k8s.io images unmount --rm {FOLDER}/root || umount -l {FOLDER}/root
rm -rf --one-file-system {FOLDER}
}} >/dev/null 2>&1
:
"""

# Reads when the outages begin, in seconds since 1970, and sends each state of the link at its time. If the node learns
# of it after the first state is due, all are that much later.
_OUTAGES = """{ read -r begin <&4 && exec env LC_ALL=C awk -v begin="$begin" '
  function now(time) { "date +%s.%N" | getline time; close("date +%s.%N"); return time + 0 }
  function wait(left) { if (left > 0) system(sprintf("sleep %.6f", left)) }
  NR == 1 && begin + $1 < now() { begin = now() - $1 }
  NF { wait(begin + $1 - now()); sub(/^[^ ]* /, ""); print; fflush() }
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
setpriv --no-new-privs --inh-caps=-all --bounding-set={_CAPABILITIES} \\
  chroot root /opt/k8sdds/k8sdds-link /links.json <commands >answers 2>messages &
link=$!
{_OUTAGES} &
until grep -q '^ready' messages; do kill -0 $link || {{ cat messages >&2; exit 1; }}; sleep 0.05; done
{_RULES}
: >ready
wait $link || :
cat messages >&2
"""

CHECK = f"""
for program in {" ".join(PROGRAMS)}; do
  command -v $program >/dev/null || {{ echo "$program is not installed" >&2; exit 1; }}
done
{_DEVICE_CHECK}
[ -z "$(tc filter show dev "$DEVICE" ingress 2>/dev/null)" ] || {{
  echo "another program handles the packets of $DEVICE first (tc filter show dev $DEVICE ingress)" >&2; exit 1
}}
export DEVICE TCP_PORTS
# In a network namespace of its own: what is missing fails there.
problem=$(unshare --net sh -e 2>&1 >/dev/null <<'END_OF_CHECK'
ip link add name "$DEVICE" type veth peer name other
{_INTERFACES}{_RULES}
END_OF_CHECK
) || {{ echo "$problem" | head -n 1 >&2; exit 1; }}
"""

_STOP = f"""
set +e
exec 8<{LOCK}
flock -w {LOCKED_S} 8
systemctl stop {UNIT} 2>/dev/null
({_UNDO})
ls -d {FOLDER} /sys/class/net/k8sdds-near /sys/class/net/k8sdds-far 2>/dev/null
nft list table netdev k8sdds-link 2>/dev/null
:
"""

# The answer, and then the time since 1970. The pipes are opened for both ways, because a pipe without a reader would
# block a script.
START = f"""
cd {FOLDER} || exit 1
before=$(wc -l <answers)
echo start 1<>commands
until [ "$(wc -l <answers)" -gt "$before" ]; do [ -e ready ] || exit 1; sleep 0.01; done
tail -n 1 answers
date +%s%N
"""

# All answers up to the statistics, in one line of JSON. The answer to a state of the schedule can follow.
STATISTICS = f"""
cd {FOLDER} || exit 1
echo stop 1<>commands
until [ "$(sed '/^{{/q' answers | tail -c 2)" = "}}" ]; do [ -e ready ] || exit 1; sleep 0.01; done
sed '/^{{/q' answers
"""


def start(prologue: str, configuration: Mapping[str, Any], states: Sequence[tuple[int, str]]) -> str:
    """Return the script that emulates the link of a node.

    Args:
        prologue: What `prologue` returned.
        configuration: The configuration of `k8sdds-link`.
        states: States of the link in its outages, each with its time after the moment of `begin`, in µs.
    """
    schedule = "\n".join(f"{at_us / 1e6:.6f} outage * {state}" for at_us, state in states)
    return f"""
set -e
exec 8<{LOCK}
flock -w {LOCKED_S} 8 || {{ echo "another script emulates this link" >&2; exit 1; }}
since=$(date +%s)
systemctl stop {UNIT} 2>/dev/null || :
({_UNDO})
mkdir -m 700 {FOLDER}
cd {FOLDER}
cat >configuration <<'END_OF_CONFIGURATION'
{json.dumps(configuration)}
END_OF_CONFIGURATION
cat >schedule <<'END_OF_SCHEDULE'
{schedule}
END_OF_SCHEDULE
cat >undo <<'END_OF_UNDO'
{_UNDO}
END_OF_UNDO
cat >run <<'END_OF_RUN'
{{
{prologue}
{_RUN}
}}
END_OF_RUN
{prologue}
{_DEVICE_CHECK}
systemd-run --quiet --collect --unit={UNIT} --property=TimeoutStopSec=15 --property=Nice=-20 \\
  --property="RuntimeMaxSec=$AT_MOST_S" \\
  --property="ExecStopPost=/bin/sh {FOLDER}/undo" /bin/sh -e {FOLDER}/run
until [ -e ready ]; do
  systemctl --quiet is-active {UNIT} || {{
    journalctl --quiet --unit={UNIT} --since="@$since" --output=cat --lines=20 | grep -v systemd >&2
    exit 1
  }}
  sleep 0.05
done
"""


def begin(moment_ns: int) -> str:
    """Return the script that lets the outages of a link begin at a moment, by the time since 1970."""
    seconds, ns = divmod(moment_ns, 10**9)
    return f"cd {FOLDER} && echo {seconds}.{ns:09d} 1<>states\n"


def prologue(
    interface: str | None,
    ssh_port: str = "",
    image: str = "",
    at_most_s: float = 0,
    peers: Sequence[str] = (),
) -> str:
    """Return the first lines of a node's scripts, which set their variables.

    Args:
        interface: The network interface; None is that of the default route.
        ssh_port: Port of its SSH server.
        image: Image with the program.
        at_most_s: How long to emulate the link.
        peers: Addresses of other nodes, which must be reached by the interface.
    """
    ports = ", ".join(dict.fromkeys(filter(None, (*map(str, TCP_PORTS), ssh_port))))
    variables = {
        "DEVICE": interface or "",
        "IMAGE": image,
        "TCP_PORTS": ports,
        "AT_MOST_S": f"{at_most_s:.0f}",
        "PEERS": " ".join(peers),
    }
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items()) + _DEVICE


def restore() -> str:
    """Return a script that ends the emulation of a link, if there is one, and prints what is left of it."""
    return f"({_STOP})\n"
