ip link add cilium_net type veth peer name cilium_host
ip link set cilium_net up
ip link set cilium_host up
ip link add cilium_vxlan type vxlan id 1 dev eth0 dstport 8472
ip link add lxc0123456789ab type veth peer name cable3
ip addr add 10.244.0.7/32 dev cilium_host
ip route add 10.244.0.7 dev cilium_host scope link
ip route add 10.244.1.0/24 via 10.244.0.7 dev cilium_host src 10.244.0.7
ip route add local default dev lo table 2004
ip rule add fwmark 0x200/0xf00 lookup 2004 priority 9
ip rule add priority 100 lookup local
ip rule delete priority 0
ipset create cilium_node_set_v4 hash:net
iptables-nft -N CILIUM_FORWARD
iptables-nft -I FORWARD -m comment --comment "cilium-feeder: CILIUM_FORWARD" -j CILIUM_FORWARD
iptables-nft -A CILIUM_FORWARD -o cilium_host -j ACCEPT
mkdir -p /run/cilium /opt/cni/bin
: >/opt/cni/bin/cilium-cni
echo '{}' >/etc/cni/net.d/05-cilium.conflist
