ip link add weave type bridge
ip addr add 10.244.0.1/16 dev weave
ip link set weave up
ip link add vethwe-bridge type veth peer name vethwe-datapath
ip link set vethwe-bridge master weave
ip link add vxlan-6784 type vxlan id 1 dev eth0 dstport 6784
ipset create weave-abc hash:ip
iptables-nft -t nat -N WEAVE
iptables-nft -t nat -A POSTROUTING -j WEAVE
iptables-nft -t nat -A WEAVE -s 10.244.0.0/16 -d 224.0.0.0/4 -j RETURN
iptables-nft -N WEAVE-NPC
iptables-nft -N WEAVE-NPC-DEFAULT
iptables-nft -A FORWARD -o weave -m comment --comment "NOTE: this must go before '-j KUBE-FORWARD'" -j WEAVE-NPC
iptables-nft -A FORWARD -i weave ! -o weave -j ACCEPT
iptables-nft -A WEAVE-NPC -j WEAVE-NPC-DEFAULT
iptables-nft -A WEAVE-NPC-DEFAULT -m set --match-set weave-abc dst -j ACCEPT
iptables-nft -A INPUT -d 127.0.0.1/32 -p tcp --dport 6784 -m addrtype ! --src-type LOCAL   -m comment --comment "Block non-local access to Weave Net control port" -j DROP
ip xfrm policy add src 10.88.0.11 dst 10.88.0.12 proto udp dport 6784 dir out mark 0x20000 mask 0x20000   tmpl proto esp mode transport
mkdir -p /var/lib/weave /run/weave /opt/cni/bin
: >/opt/cni/bin/weave-net
echo '{}' >/etc/cni/net.d/10-weave.conflist
