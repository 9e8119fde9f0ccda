"""k8sdds measures what a Kubernetes network costs a DDS application."""

from k8sdds.versions import K8SDDS as __version__

__all__ = ["__version__"]
