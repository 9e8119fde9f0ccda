"""The lab: nodes and pods as namespaces on this machine."""
