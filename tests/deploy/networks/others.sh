# What the machine's owner and Kubernetes created: it must stay.
ip link add br0 type bridge
# The kernel's module ipip creates this tunnel in every network namespace.
ip link show tunl0 2>/dev/null || ip link add tunl0 type bridge
ip link add tun-office type bridge
ip link add vethmine type veth peer name vethother
ip link set vethmine master br0
ip link add mine type bridge
ip addr add 192.168.7.1/24 dev mine
ip link set mine up
ip route add 192.168.8.0/24 via 192.168.7.2 proto static
ip rule add to 192.168.9.0/24 table 100 priority 500
ip route add 192.168.9.0/24 via 192.168.7.2 table 100
ip xfrm policy add src 192.168.7.0/24 dst 192.168.8.0/24 dir out tmpl src 10.88.0.11 dst 192.168.7.2 proto esp mode tunnel
ipset create mine hash:ip
nft add table ip mine
iptables-nft -t nat -N KUBE-SERVICES
iptables-nft -t nat -A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
iptables-nft -N MINE
iptables-nft -A FORWARD -i br0 -m comment --comment "it's mine, not weave's" -j MINE
iptables-nft -A INPUT -p tcp --dport 6783 -j ACCEPT
mkdir -p /etc/cni/net.d /var/lib/cni/networks/mine /run/mine
echo '{}' >/etc/cni/net.d/99-mine.conf
