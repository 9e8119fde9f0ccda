"""Access to a Kubernetes API server: client, exec streams, kubeconfig, apply, metrics."""
