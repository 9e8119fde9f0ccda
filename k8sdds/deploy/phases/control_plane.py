"""The control plane: kubeadm init, with a configuration that is a file."""

from __future__ import annotations

import json
from typing import Any

from k8sdds import versions
from k8sdds.deploy.actions import STATE, Action, file_script
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.network_switch import footprint
from k8sdds.model.profile import Kubernetes, Node

PHASE = "control plane"
CONFIG_FILE = f"{STATE}/kubeadm.yaml"
SOCKET = "unix:///run/containerd/containerd.sock"
KUBELET = "what the kubelet says: journalctl -u kubelet on the machine; or k8sdds logs"
"""Where to look when kubeadm waits for it in vain."""
LISTS_FROM_MINOR = 31
"""From this Kubernetes on, kubeadm's v1beta4, where extra arguments are a list."""

EVICTION = {
    "memory.available": "100Mi",
    "nodefs.available": "500Mi",
    "imagefs.available": "500Mi",
    "nodefs.inodesFree": "1%",
}
"""When a kubelet on local nodes begins to end pods."""

AWAIT = """\
for second in $(seq 90); do kubectl get --raw /readyz >/dev/null 2>&1 && break; sleep 1; done
kubectl get --raw /readyz >/dev/null
"""

# What an interrupted or failed attempt, or an earlier cluster of ours, left; of a first attempt, nothing.
# Folders may be mount points.
RESET = f"""\
if [ -n "$(find /etc/kubernetes /var/lib/etcd /var/lib/kubelet -mindepth 1 -print -quit 2>/dev/null)" ]; then
  kubeadm reset --force --cri-socket {SOCKET} >/dev/null 2>&1 || :
  rm -f /etc/kubernetes/*.conf
  find /var/lib/etcd -mindepth 1 -delete 2>/dev/null || :
{footprint.purge_script()}
fi
"""


def plan(wanted: DesiredState, node: Node) -> list[Action]:
    """The control plane, on its node."""
    if not node.is_control_plane:
        return []
    if wanted.joined(node.name):
        if wanted.cluster.up:
            return []
        script = "systemctl start containerd kubelet\n" + AWAIT
        return [Action(node.name, PHASE, "start the control plane that is there", script, timeout_s=150)]
    script = (
        f"rm -f {STATE}/initialised\n"
        + RESET
        + file_script(CONFIG_FILE, documents(wanted), "0600")
        + f"kubeadm init --config {CONFIG_FILE} --skip-token-print\n"
        + AWAIT
        + f": >{STATE}/initialised\n"
    )
    return [
        Action(
            node.name, PHASE, f"make the control plane (kubeadm init, {wanted.profile.kubernetes.version})",
            script, timeout_s=600, remedy=KUBELET,
        )
    ]  # fmt: skip


def lists(kubernetes: Kubernetes) -> bool:
    """Whether its kubeadm has extra arguments as lists."""
    return kubernetes.minor >= LISTS_FROM_MINOR


def api(kubernetes: Kubernetes) -> str:
    """The version of kubeadm's configuration."""
    return f"kubeadm.k8s.io/v1beta{4 if lists(kubernetes) else 3}"


def documents(wanted: DesiredState) -> str:
    """kubeadm's configuration."""
    node, kubernetes = wanted.profile.control_plane, wanted.profile.kubernetes
    version = api(kubernetes)
    address = wanted.address(node.name)
    init = {
        "apiVersion": version,
        "kind": "InitConfiguration",
        "localAPIEndpoint": {"advertiseAddress": address, "bindPort": versions.API_SERVER_PORT},
        "nodeRegistration": registration(wanted, node),
    }
    whole: dict[str, Any] = {
        "apiVersion": version,
        "kind": "ClusterConfiguration",
        "clusterName": wanted.profile.name,
        "kubernetesVersion": f"v{kubernetes.version}",
        "networking": {"podSubnet": str(kubernetes.pod_cidr), "serviceSubnet": str(kubernetes.service_cidr)},
        # So that the API server can be reached through a forwarded port.
        "apiServer": {"certSANs": ["127.0.0.1", "localhost", address]},
    }
    kubelet: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "systemd",
        # Images that were imported cannot be pulled again, so none may be collected as garbage.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
    }
    if lists(kubernetes) and any(facts.one.get("cgroup") == "1" for facts in wanted.facts.values()):
        kubelet["failCgroupV1"] = False
    proxy: dict[str, Any] = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
    }
    local = wanted.profile.provider == "local"
    if local:
        # The disk is this machine's, and most of it is not the nodes': a share of its size says nothing.
        kubelet["evictionHard"] = EVICTION
    if local or any(facts.one.get("conntrack") == "fixed" for facts in wanted.facts.values()):
        # Not writable outside a machine's first network namespace: kube-proxy would end over it.
        proxy["conntrack"] = {"maxPerCore": 0}
    return "---\n".join(json.dumps(one, indent=1) + "\n" for one in (init, whole, kubelet, proxy))


def registration(wanted: DesiredState, node: Node) -> dict[str, Any]:
    """How kubeadm registers a node."""
    arguments = {"node-ip": wanted.address(node.name)}
    named = [{"name": key, "value": value} for key, value in arguments.items()]
    made: dict[str, Any] = {
        "name": node.name,
        "criSocket": SOCKET,
        "kubeletExtraArgs": named if lists(wanted.profile.kubernetes) else arguments,
    }
    if wanted.facts[node.name].one.get("cgroup") == "1":
        # kubeadm's check of the system refuses cgroup v1, which the kubelet is told to accept.
        made["ignorePreflightErrors"] = ["SystemVerification"]
    if node.is_control_plane and "worker" in node.roles:
        made["taints"] = []
    return made
