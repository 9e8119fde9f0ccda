"""The node's own network: `baremetal` and `host`."""
