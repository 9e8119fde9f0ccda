"""Numbers that the study printed, for tests that put them in and for tests that expect them."""

PAYLOADS = (64, 256, 1024, 4096, 16384)
"""In bytes; the columns of its tables."""

TABLE_I = {
    "flannel-vxlan": (45.6, 44.4, 41.3, 8.4, 2.9),
    "flannel-hostgw": (29.8, 28.4, 24.6, 0.3, -0.1),
    "kube-router": (28.1, 28.4, 24.5, 0.3, -0.1),
    "weavenet": (52.6, 51.6, 49.5, 15.5, 2.8),
}
"""Throughput overhead against the host's network, in percent."""

TABLE_II = {
    "flannel-vxlan": (39.3, 37.8, 28.7, 25.6, 35.9),
    "flannel-hostgw": (16.5, 15.2, 13.1, 18.8, 27.7),
    "kube-router": (13.5, 12.6, 9.8, 19.1, 30.3),
    "weavenet": (52.2, 48.7, 38.6, 33.1, 41.4),
}
"""Overhead of the 90th percentile of latency, in percent."""
