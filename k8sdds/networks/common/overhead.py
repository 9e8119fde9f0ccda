"""Bytes that each encapsulation adds to a packet: how much smaller a pod's MTU must be than the link's."""

VXLAN = 50
"""Outer IPv4 (20), UDP (8), VXLAN (8) and inner Ethernet (14) headers: RFC 7348, section 5."""

IPIP = 20
"""Outer IPv4 header: RFC 2003, section 3."""

ESP_TRANSPORT = 34
"""SPI and sequence number (8), IV (8), pad length and next header (2) and check value (16) of AES-GCM, without
padding: RFC 4303, section 2, and RFC 4106, sections 3 and 6."""

ESP_TUNNEL = ESP_TRANSPORT + 20
"""ESP in tunnel mode adds an outer IPv4 header (20): RFC 4303, section 3.1.2."""

WIREGUARD = 60
"""Outer IPv4 (20) and UDP (8), WireGuard's data header (16) and Poly1305 tag (16): Donenfeld, "WireGuard: Next
Generation Kernel Network Tunnel", NDSS 2017, section 5.4.6."""

WIREGUARD_IPV6 = WIREGUARD + 20
"""The same with an outer IPv6 header (40). wg-quick and flannel reserve this much for IPv4, too."""

OUTER_IPV6 = 20
"""How much longer an outer IPv6 header (40) is than one of IPv4."""
