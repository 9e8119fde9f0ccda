"""Replace the network of a deployed cluster and prove that nothing of the old one is left."""
