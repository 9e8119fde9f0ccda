ip link add cni0 type bridge
ip addr add 10.244.0.1/24 dev cni0
ip link set cni0 up
ip link add veth0123abcd type veth peer name cable
ip link set veth0123abcd master cni0
ip link add flannel.1 mtu 1450 type vxlan id 1 dev eth0 local 10.88.0.11 dstport 8472 nolearning
ip addr add 10.244.0.0/32 dev flannel.1
ip link set flannel.1 up
ip route add 10.244.1.0/24 via 10.244.1.0 dev flannel.1 onlink
iptables-nft -t nat -N FLANNEL-POSTRTG
iptables-nft -t nat -A POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG
iptables-nft -t nat -A FLANNEL-POSTRTG -s 10.244.0.0/16 ! -d 224.0.0.0/4 -j MASQUERADE --random-fully
iptables-nft -N FLANNEL-FWD
iptables-nft -A FORWARD -m comment --comment "flanneld forward" -j FLANNEL-FWD
iptables-nft -A FLANNEL-FWD -s 10.244.0.0/16 -j ACCEPT
iptables-nft -t nat -N CNI-HOSTPORT-DNAT
iptables-nft -t nat -N CNI-DN-0123456789abcdef
iptables-nft -t nat -A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
iptables-nft -t nat -A CNI-HOSTPORT-DNAT -p tcp --dport 80 -j CNI-DN-0123456789abcdef
mkdir -p /run/flannel /var/lib/cni/flannel /var/lib/cni/networks/flannel /var/lib/cni/results
echo FLANNEL_MTU=1450 >/run/flannel/subnet.env
echo '{}' >/etc/cni/net.d/10-flannel.conflist
echo '{}' >/var/lib/cni/results/flannel-0123-eth0
