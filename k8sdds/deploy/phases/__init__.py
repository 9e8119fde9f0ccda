"""List the phases of a deploy in the order in which they run on each node."""

from __future__ import annotations

from k8sdds.deploy.phases.claim import Claim
from k8sdds.deploy.phases.control_plane import ControlPlane
from k8sdds.deploy.phases.discovery_service import DiscoveryService
from k8sdds.deploy.phases.images import Images
from k8sdds.deploy.phases.join import Join, WaitForNodes
from k8sdds.deploy.phases.kube_proxy import KubeProxy
from k8sdds.deploy.phases.kubernetes import Kubernetes
from k8sdds.deploy.phases.labels import Labels
from k8sdds.deploy.phases.metrics_server import MetricsServer, WaitForMetricsServer
from k8sdds.deploy.phases.network import Network
from k8sdds.deploy.phases.phase import Phase
from k8sdds.deploy.phases.proxy import Proxy
from k8sdds.deploy.phases.registry import Registry
from k8sdds.deploy.phases.runtime import Runtime
from k8sdds.deploy.phases.smoke_test import SmokeTest
from k8sdds.deploy.phases.taints import Taints
from k8sdds.deploy.phases.tuning import Tuning

PHASES: tuple[Phase, ...] = (
    Claim(),
    Tuning(),
    Proxy(),
    Runtime(),
    Registry(),
    Kubernetes(),
    ControlPlane(),
    KubeProxy(),
    Network(),
    MetricsServer(),
    Images(),
    Join(),
    WaitForNodes(),
    Labels(),
    Taints(),
    DiscoveryService(),
    SmokeTest(),
    WaitForMetricsServer(),
)
"""Nodes are changed in parallel. An action that depends on another node names the step that it needs."""

__all__ = ["PHASES", "Phase"]
