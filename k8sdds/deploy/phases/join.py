"""Workers join the control plane, and all nodes become ready."""

from __future__ import annotations

import json

from k8sdds import versions
from k8sdds.deploy.actions import PRIVATE, STATE, Action, Private, file_script
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.phases import control_plane
from k8sdds.kubernetes import apply
from k8sdds.model.profile import Node

PHASE = "join"
CONFIG_FILE = f"{STATE}/kubeadm.yaml"
DISCOVERY_FILE = f"{PRIVATE}/discovery.conf"


def plan(wanted: DesiredState, node: Node) -> list[Action]:
    """Join on a worker; on the control plane, wait until all nodes are ready."""
    if node.is_control_plane:
        return _ready(wanted, node)
    if wanted.joined(node.name):
        if not wanted.cluster.up or wanted.cluster.ready.get(node.name):
            return []
        script = "systemctl start containerd\nsystemctl restart kubelet\n"
        return [Action(node.name, PHASE, "start the kubelet, whose node is not ready", script)]
    script = (
        f"rm -f {STATE}/joined\n"
        + control_plane.RESET
        + file_script(CONFIG_FILE, document(wanted, node), "0600")
        + f"kubeadm join --config {CONFIG_FILE}\n: >{STATE}/joined\n"
    )
    return [
        Action(
            node.name, PHASE, f"join the cluster at {wanted.server}", script,
            private=(Private(DISCOVERY_FILE, wanted.head, _discovery(wanted, node)),),
            needs=((wanted.head, control_plane.PHASE),), timeout_s=420,
            remedy=control_plane.KUBELET,
        )
    ]  # fmt: skip


def document(wanted: DesiredState, node: Node) -> str:
    """kubeadm's configuration of a worker."""
    config = {
        "apiVersion": control_plane.api(wanted.profile.kubernetes),
        "kind": "JoinConfiguration",
        "discovery": {"file": {"kubeConfigPath": DISCOVERY_FILE}},
        "nodeRegistration": control_plane.registration(wanted, node),
    }
    return json.dumps(config, indent=1) + "\n"


def _discovery(wanted: DesiredState, node: Node) -> str:
    # A token that is valid for as long as joining takes, beside the cluster's own certificate: nothing is
    # trusted that did not come over ssh.
    cluster = wanted.cluster
    forget = ""
    if wanted.joined(wanted.head) and (not cluster.up or node.name in cluster.ready):
        # kubeadm lets nobody join by the name of a node that was ready a moment ago.
        forget = f"kubectl delete node {node.name} --ignore-not-found --timeout=60s >/dev/null\n"
    return f"""\
{forget}token=$(kubeadm token create --ttl 15m 2>/dev/null)
cat <<END
apiVersion: v1
kind: Config
clusters:
- name: cluster
  cluster:
    server: https://{wanted.server}
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


def _ready(wanted: DesiredState, node: Node) -> list[Action]:
    names = [one.name for one in wanted.profile.nodes]
    daemonsets = {f"DaemonSet/{one.split('/')[1]}/{one.split('/')[2]}" for one in wanted.network.daemonsets}
    cluster = wanted.cluster
    # Nodes that are left out now (--limit) may be down, and their pods with them.
    whole = set(cluster.ready) <= set(names)
    if all(cluster.ready.get(name) for name in names) and not (whole and daemonsets & cluster.not_ready):
        same = set(cluster.objects)
        if daemonsets <= same:
            return []
    # kubectl waits by itself, but not for a node that the API server has not heard of yet.
    script = (
        "ready() {\n"
        f"  kubectl wait node {' '.join(names)} --for=condition=Ready --timeout=60s >/dev/null 2>&1\n}}\n"
        "end=$(($(date +%s) + 180))\nuntil ready; do\n  if [ $(date +%s) -ge $end ]; then\n"
        "    kubectl get nodes >&2\n"
        "    kubectl describe nodes | grep -E '^Name:|NotReady|not ready' >&2\n    exit 1\n  fi\n"
        "  sleep 0.5\ndone\n"
    )
    if whole:
        script += apply.wait_script(wanted.network.daemonsets)
        script += apply.wait_script((f"deployment/{versions.KUBE_SYSTEM_NAMESPACE}/coredns",))
    needs = tuple((one.name, PHASE) for one in wanted.workers())
    return [Action(node.name, PHASE, "wait until all nodes are ready", script, needs=needs, timeout_s=600)]
