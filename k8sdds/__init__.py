"""k8sdds measures what a Kubernetes network costs a DDS application."""

__version__ = "0.1.0"
