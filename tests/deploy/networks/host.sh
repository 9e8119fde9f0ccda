ip link add k8sdds0 type bridge
ip route add 10.244.1.0/24 via 10.88.0.12 dev eth0 proto 75
nft add table ip k8sdds-host
nft add chain ip k8sdds-host postrouting '{ type nat hook postrouting priority srcnat; }'
mkdir -p /var/lib/cni/networks/k8sdds-host
echo '{}' >/etc/cni/net.d/10-k8sdds-host.conflist
