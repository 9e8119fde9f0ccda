"""Create the control plane with kubeadm init, and let workers join it with kubeadm join."""

from __future__ import annotations

import json
from typing import Any

from k8sdds import versions
from k8sdds.deploy import limits
from k8sdds.deploy.actions import PRIVATE, STATE, Action, PrivateFile, file_script
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.network_switch import footprint
from k8sdds.deploy.phases import proxy
from k8sdds.deploy.phases.machine import CONTAINERD_SOCKET
from k8sdds.deploy.phases.phase import CONTROL_PLANE, CPU_MANAGER, JOIN, KUBE_PROXY, on_control_plane, steps
from k8sdds.deploy.scripts import shell
from k8sdds.kubernetes import apply
from k8sdds.model.kubernetes import Kubernetes
from k8sdds.model.profile import Node

CONFIG_FILE = f"{STATE}/kubeadm.yaml"
DISCOVERY_FILE = f"{PRIVATE}/discovery.conf"
CRI_SOCKET = f"unix://{CONTAINERD_SOCKET}"
TOKEN_S = 900
"""Lifetime of the token with which workers join. Those that join later, or may take longer, get another one."""
KUBELET_LOGS = "read the kubelet's log: journalctl -u kubelet on the machine, or k8sdds logs"
"""Remedy when the kubelet does not start before kubeadm's timeout."""
ARGUMENT_LISTS_FROM_MINOR = 31
"""First minor version whose kubeadm has the API v1beta4, in which extra arguments are a list."""

PATCHES = f"{STATE}/patches"
"""Folder with changes to what kubeadm installs. It can change CoreDNS since the version with argument lists."""
COREDNS_PATCH = {
    "spec": {
        "template": {"spec": {"containers": [{"name": "coredns", "readinessProbe": {"periodSeconds": 1}}]}}
    }
}
"""By default, a CoreDNS that is not ready at its first probe is probed again after 10 s: after a deploy and after most
network switches, these would wait for nothing else."""

EVICTION = {
    "memory.available": "100Mi",
    "nodefs.available": "500Mi",
    "imagefs.available": "500Mi",
    "nodefs.inodesFree": "1%",
}
"""Thresholds at which the kubelet of a local node evicts pods."""

NO_FOLDER = "/proc/none"
"""Folder that cannot be created: the kubelet of a local node does not watch it for drivers of FlexVolume."""
RELOADS_CERTIFICATE_IN_MINORS = range(31, 37)
"""Minor versions whose kubelet watches the files of its certificate, unless a feature gate disables it. The kubelet of
a local node signs that certificate itself, and nothing replaces it."""

CPU_MANAGER_SETTINGS = {
    "none": "",
    "static": r"cpuManagerPolicy: static\nkubeReserved: {cpu: 100m}\n",
}
"""Lines of the kubelet's configuration for each policy. `static` needs reserved CPU time, whose core no pod owns."""

AWAIT_API_SERVER = """\
for second in $(seq 90); do kubectl get --raw /readyz >/dev/null 2>&1 && break; sleep 1; done
kubectl get --raw /readyz >/dev/null
"""

RESET = shell("reset", CRI_SOCKET=CRI_SOCKET, PURGE=footprint.purge_script())


@on_control_plane
def control_plane(state: DesiredState, node: Node) -> list[Action]:
    """Run kubeadm init, or start a control plane that was stopped."""
    if state.is_joined(node.name):
        if state.cluster.up:
            return []
        script = "systemctl start containerd kubelet\n" + AWAIT_API_SERVER
        return [Action(node.name, CONTROL_PLANE, "start the existing control plane", script, timeout_s=150)]
    script = (
        f"rm -f {STATE}/initialised\n"
        + RESET
        + file_script(CONFIG_FILE, configuration(state), "0600")
        + file_script(f"{PATCHES}/corednsdeployment.json", json.dumps(COREDNS_PATCH) + "\n")
        + f"{proxy.environment(state)}kubeadm init --config {CONFIG_FILE} --skip-token-print\n"
        + AWAIT_API_SERVER
        + f": >{STATE}/initialised\n"
    )
    title = f"create the control plane (kubeadm init, {state.profile.kubernetes.version})"
    return [Action(node.name, CONTROL_PLANE, title, script, timeout_s=600, remedy=KUBELET_LOGS)]


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
        + RESET
        + file_script(CONFIG_FILE, join_configuration(state, node), "0600")
        + f"{proxy.environment(state)}kubeadm join --config {CONFIG_FILE}\n: >{STATE}/joined\n"
    )
    discovery = PrivateFile(
        DISCOVERY_FILE, node=state.control_plane, script=_discovery_script(state, node), valid_s=TOKEN_S
    )
    return [
        Action(
            node.name, JOIN, f"join the cluster at {state.api_server}", script, private=(discovery,),
            needs=steps([state.profile.control_plane], CONTROL_PLANE), timeout_s=420,
            remedy=KUBELET_LOGS,
        )
    ]  # fmt: skip


@on_control_plane
def wait_for_nodes(state: DesiredState, node: Node) -> list[Action]:
    """Wait until all nodes are ready, and the network and DNS on them."""
    names, cluster = [node.name for node in state.profile.nodes], state.cluster
    agents = {*state.network.daemonsets}
    # Without all nodes of the cluster (--limit), pods on the others may be down.
    complete = set(cluster.ready) <= set(names)
    nodes_ready = all(cluster.ready.get(name) for name in names)
    agents_ready = agents <= set(cluster.objects) and not (complete and agents & cluster.not_ready)
    if nodes_ready and agents_ready:
        return []
    ready_s = limits.of_cluster(limits.READY_S, len(names))
    script = shell("wait_for_nodes", NODES=" ".join(names), READY_S=str(ready_s))
    if complete:
        dns = f"Deployment/{versions.KUBE_SYSTEM_NAMESPACE}/coredns"
        script += apply.wait_script((*state.network.daemonsets, dns), ready_s)
    # One after the other: the nodes, the network, DNS.
    needs, timeout_s = steps(state.workers(), JOIN), 3 * ready_s + 120
    return [
        Action(node.name, JOIN, "wait until all nodes are ready", script, needs=needs, timeout_s=timeout_s)
    ]


@on_control_plane
def kube_proxy(state: DesiredState, node: Node) -> list[Action]:
    """Change the mode of kube-proxy on a cluster that runs; kubeadm init installs it on a new one.

    A kube-proxy that starts deletes the rules of the other mode, iptables or nftables.
    """
    desired = state.profile.kubernetes.kube_proxy
    if not state.is_joined(node.name) or state.facts[node.name].values.get("kube_proxy") == desired:
        return []
    restart_s = limits.of_cluster(limits.KUBE_PROXY_S, len(state.profile.nodes))
    daemons, new_config = "--namespace kube-system daemonset/kube-proxy", f"{CONFIG_FILE}.new"
    script = (
        file_script(new_config, configuration(state), "0600")
        + f"kubeadm init phase addon kube-proxy --config {new_config} >/dev/null\n"
        + f"kubectl rollout restart {daemons} >/dev/null\n"
        + f"kubectl rollout status {daemons} --timeout {restart_s}s >/dev/null\n"
        # The file holds the mode that runs, so it comes last: an interrupted change is repeated.
        + f"mv {new_config} {CONFIG_FILE}\n"
    )
    return [Action(node.name, KUBE_PROXY, f"use the mode {desired}", script, timeout_s=restart_s + 60)]


def cpu_manager(state: DesiredState, node: Node) -> list[Action]:
    """Change the policy of the kubelet's CPU manager, which is `none` on a node that has just joined."""
    desired = state.profile.kubernetes.cpu_manager
    configured = state.facts[node.name].values.get("cpu_manager") if state.is_joined(node.name) else None
    if desired == (configured or "none"):
        return []
    script = shell("cpu_manager", SETTINGS=CPU_MANAGER_SETTINGS[desired], POLICY=desired)
    title = f"use the policy {desired} of the kubelet's CPU manager"
    return [Action(node.name, CPU_MANAGER, title, script, timeout_s=180, remedy=KUBELET_LOGS)]


def has_argument_lists(kubernetes: Kubernetes) -> bool:
    """Return whether kubeadm of this version takes extra arguments as lists."""
    return kubernetes.minor >= ARGUMENT_LISTS_FROM_MINOR


def api_version(kubernetes: Kubernetes) -> str:
    """Return the API version of kubeadm's configuration."""
    return f"kubeadm.k8s.io/v1beta{4 if has_argument_lists(kubernetes) else 3}"


def configuration(state: DesiredState) -> str:
    """Return the configuration of kubeadm init: four JSON documents."""
    node, kubernetes = state.profile.control_plane, state.profile.kubernetes
    address = state.address(node.name)
    init: dict[str, Any] = {
        "apiVersion": api_version(kubernetes),
        "kind": "InitConfiguration",
        "localAPIEndpoint": {"advertiseAddress": address, "bindPort": versions.API_SERVER_PORT},
        "nodeRegistration": node_registration(state, node),
    }
    if has_argument_lists(kubernetes):
        init["patches"] = {"directory": PATCHES}
    cluster: dict[str, Any] = {
        "apiVersion": api_version(kubernetes),
        "kind": "ClusterConfiguration",
        "clusterName": state.profile.name,
        "kubernetesVersion": f"v{kubernetes.version}",
        "networking": {
            "podSubnet": ",".join(map(str, kubernetes.pod_cidrs)),
            "serviceSubnet": ",".join(map(str, kubernetes.service_cidrs)),
        },
        # The API server is also reached through a forwarded local port.
        "apiServer": {"certSANs": ["127.0.0.1", "localhost", *state.addresses(node.name)]},
    }
    documents = (init, cluster, _kubelet(state), _kube_proxy(state))
    return "---\n".join(json.dumps(document, indent=1) + "\n" for document in documents)


def _kubelet(state: DesiredState) -> dict[str, Any]:
    """Return the settings of all kubelets."""
    kubernetes = state.profile.kubernetes
    kubelet: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "systemd",
        # Imported images cannot be pulled again, so the kubelet must not collect them as garbage.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
    }
    if has_argument_lists(kubernetes) and _has_machine(state, "cgroup", "1"):
        kubelet["failCgroupV1"] = False
    if state.profile.provider == "local":
        # Local nodes share this machine's disk, so thresholds in percent of its size do not fit them.
        kubelet["evictionHard"] = EVICTION
        # Local nodes share this machine's inotify instances, of which the kubelet needs one for each of these.
        kubelet["volumePluginDir"] = NO_FOLDER
        if kubernetes.minor in RELOADS_CERTIFICATE_IN_MINORS:
            kubelet["featureGates"] = {"ReloadKubeletServerCertificateFile": False}
    return kubelet


def _kube_proxy(state: DesiredState) -> dict[str, Any]:
    """Return the settings of kube-proxy."""
    kube_proxy: dict[str, Any] = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": state.profile.kubernetes.kube_proxy,
    }
    if state.profile.provider == "local" or _has_machine(state, "conntrack", "fixed"):
        # kube-proxy would exit because nf_conntrack_max is read-only outside the first network namespace.
        kube_proxy["conntrack"] = {"maxPerCore": 0}
    return kube_proxy


def _has_machine(state: DesiredState, fact: str, value: str) -> bool:
    """Return whether a fact of any machine has this value."""
    return any(machine.values.get(fact) == value for machine in state.facts.values())


def node_registration(state: DesiredState, node: Node) -> dict[str, Any]:
    """Return how kubeadm registers a node."""
    arguments = {"node-ip": ",".join(state.addresses(node.name))}
    as_list = [{"name": key, "value": value} for key, value in arguments.items()]
    registration: dict[str, Any] = {
        "name": node.name,
        "criSocket": CRI_SOCKET,
        "kubeletExtraArgs": as_list if has_argument_lists(state.profile.kubernetes) else arguments,
    }
    if state.facts[node.name].values.get("cgroup") == "1":
        # kubeadm's system check rejects cgroup v1, which the kubelet is configured to accept.
        registration["ignorePreflightErrors"] = ["SystemVerification"]
    if node.is_control_plane and "worker" in node.roles:
        registration["taints"] = []
    return registration


def join_configuration(state: DesiredState, node: Node) -> str:
    """Return the configuration of kubeadm join on a worker."""
    config = {
        "apiVersion": api_version(state.profile.kubernetes),
        "kind": "JoinConfiguration",
        "discovery": {"file": {"kubeConfigPath": DISCOVERY_FILE}},
        "nodeRegistration": node_registration(state, node),
    }
    return json.dumps(config, indent=1) + "\n"


def _discovery_script(state: DesiredState, node: Node) -> str:
    script = shell("join_credentials", API_SERVER=state.api_server, TOKEN_S=str(TOKEN_S))
    if state.is_joined(state.control_plane) and (not state.cluster.up or node.name in state.cluster.ready):
        # kubeadm join refuses the name of a node that was ready a moment ago.
        return f"kubectl delete node {node.name} --ignore-not-found --timeout=60s >/dev/null\n{script}"
    return script
