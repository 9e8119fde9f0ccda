"""Parts that several networks share: bridged pods, IPsec by strongSwan, header sizes."""
