"""Packets of an experiment's MTU are sent although a machine has learned a smaller path MTU."""

from __future__ import annotations

import os
import subprocess

import pytest

from k8sdds.deploy import experiment_tuning

# A packet to port 9 of machine b goes on to a pod with a smaller MTU, as replies to a pod behind the address of its node
# do: a learns this MTU for all packets to b.
NETWORK = """
set -eu
unshare --net sleep infinity & b=$!
unshare --net sleep infinity & pod=$!
trap 'kill $b $pod' EXIT
until [ "$(readlink /proc/$b/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
until [ "$(readlink /proc/$pod/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
on_b() { nsenter --net --target $b "$@"; }
ip link add eth0 type veth peer name eth0 netns $b
ip address add 10.0.0.1/24 dev eth0
ip link set eth0 up
on_b ip address add 10.0.0.2/24 dev eth0
on_b ip link set eth0 up
on_b ip link add pod type veth peer name eth0 netns $pod
on_b ip address add 10.1.0.1/24 dev pod
on_b ip link set pod mtu 1350 up
nsenter --net --target $pod ip link set eth0 up
on_b ip neighbor add 10.1.0.2 dev pod lladdr 02:00:00:00:00:01
on_b sysctl -qw net.ipv4.ip_forward=1
on_b nft 'add table ip t; add chain ip t c { type nat hook prerouting priority -100; };
  add rule ip t c udp dport 9 dnat to 10.1.0.2'
python3 - <<'END'
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
    out.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER: do not fragment
    out.sendto(bytes(1400), ("10.0.0.2", 9))
END
until ip route get 10.0.0.2 | grep -q 'mtu 1350'; do sleep 0.01; done
on_b ip link set eth0 mtu LARGEST
"""


@pytest.mark.parametrize(("largest", "printed"), [(1500, ""), (1400, "lost\n")])
def test_only_a_link_loses_packets(largest: int, printed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root: sudo make test")
    monkeypatch.setattr(experiment_tuning, "PING_S", 3 if printed else experiment_tuning.PING_S)
    facts = {name: (f"address 10.0.0.{number}",) for number, name in enumerate("ab", 1)}
    _, script = experiment_tuning.pings_of(1500, facts)["a"]
    network = NETWORK.replace("LARGEST", str(largest))
    argv = ["unshare", "--net", "sh", "-c", f"{network}\n(\nset +e\n{script})"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, printed), done.stderr
