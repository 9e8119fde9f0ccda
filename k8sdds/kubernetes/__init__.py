"""Access a Kubernetes API server: client, exec streams, kubeconfig, objects, metrics."""
