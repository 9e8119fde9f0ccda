# A packet to port 9 of machine b goes on to a pod with a smaller MTU, as replies to a pod behind the address of its
# node do: a learns this MTU for all packets to b.
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
