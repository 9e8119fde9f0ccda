# The MAC address makes packets for the node be for the node on `k8sdds-near`, too.
link=$(ip -oneline link show dev "$DEVICE")
mac=$(echo "$link" | sed -n 's#.*link/ether \([^ ]*\).*#\1#p')
mtu=$(echo "$link" | sed 's/.* mtu \([0-9]*\).*/\1/')
ip link add k8sdds-near mtu $mtu address $mac type veth peer name @NEAR@ mtu $mtu
ip link add k8sdds-far mtu $mtu type veth peer name @FAR@ mtu $mtu
for interface in k8sdds-near @NEAR@ k8sdds-far @FAR@; do
  [ ! -e /proc/sys/net/ipv6 ] || echo 1 >/proc/sys/net/ipv6/conf/$interface/disable_ipv6
  # Each packet of the wire is lost or delayed on its own.
  ethtool -K $interface @SEGMENTATION_OFF@
  ip link set $interface up
done
tc qdisc add dev k8sdds-near clsact
tc qdisc add dev k8sdds-far clsact
tc filter add dev k8sdds-near ingress protocol all u32 match u32 0 0 action mirred ingress redirect dev "$DEVICE"
tc filter add dev k8sdds-far ingress protocol all u32 match u32 0 0 action mirred egress redirect dev "$DEVICE"
