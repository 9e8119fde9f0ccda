"""Join workers to the control plane, and wait until all nodes are ready."""

from __future__ import annotations

import json

from k8sdds import versions
from k8sdds.deploy.actions import PRIVATE, STATE, Action, PrivateFile, file_script
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.phases import control_plane, proxy
from k8sdds.deploy.phases.control_plane import CONFIG_FILE
from k8sdds.deploy.phases.phase import CONTROL_PLANE, JOIN, on_control_plane, steps
from k8sdds.kubernetes import apply
from k8sdds.model.profile import Node

DISCOVERY_FILE = f"{PRIVATE}/discovery.conf"


def join(state: DesiredState, node: Node) -> list[Action]:
    """Run kubeadm join on a worker, or restart the kubelet of a node that is not ready."""
    if node.is_control_plane:
        return []
    if state.is_joined(node.name):
        if not state.cluster.up or state.cluster.ready.get(node.name):
            return []
        script = "systemctl start containerd\nsystemctl restart kubelet\n"
        return [Action(node.name, JOIN, "start the kubelet, whose node is not ready", script)]
    script = (
        f"rm -f {STATE}/joined\n"
        + control_plane.RESET
        + file_script(CONFIG_FILE, configuration(state, node), "0600")
        + f"{proxy.environment(state)}kubeadm join --config {CONFIG_FILE}\n: >{STATE}/joined\n"
    )
    discovery = PrivateFile(DISCOVERY_FILE, node=state.control_plane, script=_discovery_script(state, node))
    return [
        Action(
            node.name, JOIN, f"join the cluster at {state.api_server}", script, private=(discovery,),
            needs=steps([state.profile.control_plane], CONTROL_PLANE), timeout_s=420,
            remedy=control_plane.KUBELET_LOGS,
        )
    ]  # fmt: skip


@on_control_plane
def wait_for_nodes(state: DesiredState, node: Node) -> list[Action]:
    """Wait until all nodes are ready, and the network and DNS on them."""
    names, cluster = state.node_names(), state.cluster
    agents = {apply.identity_of(workload) for workload in state.network.daemonsets}
    # Without all nodes of the cluster (--limit), pods on the others may be down.
    complete = set(cluster.ready) <= set(names)
    nodes_ready = all(cluster.ready.get(name) for name in names)
    agents_ready = agents <= set(cluster.objects) and not (complete and agents & cluster.not_ready)
    if nodes_ready and agents_ready:
        return []
    # kubectl wait fails for a node that has not registered yet.
    script = (
        "ready() {\n"
        f"  kubectl wait node {' '.join(names)} --for=condition=Ready --timeout=60s >/dev/null 2>&1\n}}\n"
        "end=$(($(date +%s) + 180))\nuntil ready; do\n  if [ $(date +%s) -ge $end ]; then\n"
        "    kubectl get nodes >&2\n"
        "    kubectl describe nodes | grep -E '^Name:|NotReady|not ready' >&2\n    exit 1\n  fi\n"
        "  sleep 0.5\ndone\n"
    )
    if complete:
        script += apply.wait_script(state.network.daemonsets)
        script += apply.wait_script((f"deployment/{versions.KUBE_SYSTEM_NAMESPACE}/coredns",))
    needs = steps(state.workers(), JOIN)
    return [Action(node.name, JOIN, "wait until all nodes are ready", script, needs=needs, timeout_s=600)]


def configuration(state: DesiredState, node: Node) -> str:
    """Return the configuration of kubeadm join on a worker."""
    config = {
        "apiVersion": control_plane.api_version(state.profile.kubernetes),
        "kind": "JoinConfiguration",
        "discovery": {"file": {"kubeConfigPath": DISCOVERY_FILE}},
        "nodeRegistration": control_plane.node_registration(state, node),
    }
    return json.dumps(config, indent=1) + "\n"


def _discovery_script(state: DesiredState, node: Node) -> str:
    # Prints a kubeconfig with the cluster's certificate and a short-lived token. It travels over SSH, so the
    # worker trusts no certificate that it received over the cluster network.
    cluster = state.cluster
    delete = ""
    if state.is_joined(state.control_plane) and (not cluster.up or node.name in cluster.ready):
        # kubeadm join refuses the name of a node that was ready a moment ago.
        delete = f"kubectl delete node {node.name} --ignore-not-found --timeout=60s >/dev/null\n"
    return f"""\
{delete}token=$(kubeadm token create --ttl 15m 2>/dev/null)
cat <<END
apiVersion: v1
kind: Config
clusters:
- name: cluster
  cluster:
    server: https://{state.api_server}
    certificate-authority-data: $(base64 -w 0 /etc/kubernetes/pki/ca.crt)
users:
- name: join
  user: {{token: $token}}
contexts:
- name: join
  context: {{cluster: cluster, user: join}}
current-context: join
END
"""
