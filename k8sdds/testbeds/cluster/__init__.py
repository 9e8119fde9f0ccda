"""The cluster: participants as pods that Kubernetes places and runs."""
