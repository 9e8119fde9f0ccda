ip link add kube-bridge type bridge
ip link set kube-bridge up
ip link add kube-dummy-if type bridge
ip link add tun-0123456789a type bridge
ip route add 10.244.1.0/24 via 10.88.0.12 dev eth0 proto 17
ip rule add from 10.244.0.0/24 lookup 77
ip route add 10.244.2.0/24 dev eth0 table 77
ipset create kube-router-pod-subnets hash:net
ipset add kube-router-pod-subnets 10.244.0.0/24
ipset create kube-router-node-ips hash:ip
mkdir -p /var/lib/kube-router
echo '{}' >/etc/cni/net.d/10-kuberouter.conflist
