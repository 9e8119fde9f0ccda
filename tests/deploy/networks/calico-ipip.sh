ip link add cali0123456789a type veth peer name cable2
ip link set cali0123456789a up
ip addr add 10.244.0.64/32 dev tunl0
ip link set tunl0 up
ip route add 10.244.0.65 dev cali0123456789a scope link
ip route add blackhole 10.244.0.64/26 proto 80
ip route add 10.244.1.0/26 via 10.88.0.12 dev eth0 proto bird onlink
ipset create cali40all-ipam-pools hash:net
iptables-nft -N cali-FORWARD
iptables-nft -I FORWARD -m comment --comment "cali:wUHhoiAYhphO9Mso" -j cali-FORWARD
iptables-nft -A cali-FORWARD -m set --match-set cali40all-ipam-pools src -j ACCEPT
iptables-nft -A FORWARD -m comment --comment "cali:S93hcgKJrXEqnTfs" -m mark --mark 0x10000/0x10000 -j ACCEPT
iptables-nft -t nat -N cali-POSTROUTING
iptables-nft -t nat -I POSTROUTING -m comment --comment "cali:O3lYWMrLQYEMJtB5" -j cali-POSTROUTING
mkdir -p /var/lib/calico /run/calico /opt/cni/bin
: >/opt/cni/bin/calico
echo '{}' >/etc/cni/net.d/10-calico.conflist
echo '{}' >/etc/cni/net.d/calico-kubeconfig
