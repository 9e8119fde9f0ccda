"""Flannel, with its VXLAN, host-gw, IPsec and WireGuard backends."""
