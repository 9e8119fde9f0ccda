ip link add cni0 type bridge
ip link add flannel-wg type bridge
ip link set flannel-wg up
ip route add 10.244.0.0/16 dev flannel-wg scope link
