"""Change the mode of kube-proxy on a cluster that runs; kubeadm init installs it on a new one."""

from __future__ import annotations

from k8sdds.deploy.actions import Action, Effect, file_script
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.phases import control_plane
from k8sdds.deploy.phases.phase import ControlPlanePhase
from k8sdds.model.profile import Node
from k8sdds.model.services import ProxyMode
from k8sdds.networks.cluster_install import NodeFeature

NODE_FEATURES: dict[ProxyMode, tuple[NodeFeature, ...]] = {
    "iptables": (),
    "nftables": (NodeFeature("nftables", "use a kernel with nf_tables, or kubernetes.kube_proxy: iptables"),),
    "ipvs": (
        NodeFeature("ipvs", "use a kernel with the modules ip_vs*, or kubernetes.kube_proxy: iptables"),
    ),
}
"""Kernel features that every node needs, by mode."""

_NEW_CONFIG = f"{control_plane.CONFIG_FILE}.new"


class KubeProxy(ControlPlanePhase):
    """Change the configuration of kube-proxy, and restart it on all nodes.

    A kube-proxy that starts deletes the rules of the other mode, iptables or nftables.
    """

    title = "kube-proxy"

    def plan(self, state: DesiredState, node: Node) -> list[Action]:
        """Plan to change the mode if the control plane exists and has another one."""
        desired = state.profile.kubernetes.kube_proxy
        if not state.is_joined(node.name) or state.facts[node.name].values.get("kube_proxy") == desired:
            return []
        daemons = "--namespace kube-system daemonset/kube-proxy"
        script = (
            file_script(_NEW_CONFIG, control_plane.configuration(state), "0600")
            + f"kubeadm init phase addon kube-proxy --config {_NEW_CONFIG} >/dev/null\n"
            + f"kubectl rollout restart {daemons} >/dev/null\n"
            + f"kubectl rollout status {daemons} --timeout 240s >/dev/null\n"
            # The file holds the mode that runs, so it comes last: an interrupted change is repeated.
            + f"mv {_NEW_CONFIG} {control_plane.CONFIG_FILE}\n"
        )
        effect = Effect(kube_proxy=desired)
        return [
            Action(node.name, self.title, f"use the mode {desired}", script, timeout_s=300, effect=effect)
        ]
