"""Replace the network of a deployed cluster, and verify that nothing of the old network remains."""
