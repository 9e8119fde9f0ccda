ip link add cni0 type bridge
ip route add 10.244.1.0/24 via 10.88.0.12 dev eth0
nft add table ip flannel-ipv4
nft add table ip6 flannel-ipv6
mkdir -p /run/flannel
