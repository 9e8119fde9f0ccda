"""The cluster testbed: participants run as pods that Kubernetes schedules."""
