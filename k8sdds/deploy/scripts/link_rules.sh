# Packets that come back have a mark.
nft -f - <<END
table netdev k8sdds-link {
  chain near { type filter hook egress device "@NEAR@" priority 0; meta mark set 0x6b386473; }
  chain far { type filter hook egress device "@FAR@" priority 0; meta mark set 0x6b386473; }
  chain up {
    type filter hook egress device "$DEVICE" priority 0
    meta mark 0x6b386473 meta mark set 0 accept
    jump spared
    fwd to "k8sdds-near"
  }
  chain down {
    type filter hook ingress device "$DEVICE" priority 0
    meta mark 0x6b386473 meta mark set 0 accept
    jump spared
    fwd to "k8sdds-far"
  }
  chain spared {
    tcp dport { $TCP_PORTS } accept
    tcp sport { $TCP_PORTS } accept
    udp dport { @UDP_PORTS@ } accept
    udp sport { @UDP_PORTS@ } accept
  }
}
END
