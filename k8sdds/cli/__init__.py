"""The commands. Each only wires rooms together."""
