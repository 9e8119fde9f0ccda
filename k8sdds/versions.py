"""Define the versions, images, ports, namespaces and label names that packages share.

Every such constant is defined here once. The module imports nothing, so any layer may use it.
"""

# Versions. Go programs are pinned by deploy/bundle/*/go.mod, which must agree.

K8SDDS = "0.1.0"
RUN_FOLDER = 5
"""Version of the records in run folders."""
KUBERNETES = "1.36.3"
GO = "1.26.6"
"""Go release that builds the bundle's programs: the same sources give the same bytes on every machine."""
ETCD = "3.6.8"
COREDNS = "1.14.2"
METRICS_SERVER = "0.9.0"
FLANNEL = "0.28.4"
CNI_PLUGINS = "1.9.1"
KUBE_ROUTER = "2.11.1"
WEAVE = "2.9.0"
MULTUS = "4.2.2"
PAUSE = "3.10.2"
ZENOH = "1.10.2"
"""Version of the library and router. Cargo.toml of the backend must agree."""
TOOLS = "1"
"""Version of the programs in deploy/bundle of k8sdds: flannel (the CNI plugin), probe, routes, attach, meter."""
OWN_PROGRAMS = ("flannel",)
"""Those of them that a bundle installs on nodes."""

# Architectures, by Kubernetes' names.

ARCHITECTURES = ("amd64", "arm64", "arm")
BUNDLE_ARCHITECTURES = ("amd64", "arm64")
"""Architectures for which bundles and k8sdds images can be built."""
ARCHITECTURE_OF_MACHINE = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "armv6l": "arm"}
"""Architecture by the machine name that uname reports."""
LAST_MINOR_ON_ARM32 = 26
"""Kubernetes 1.27 and later publish no programs or images for 32-bit ARM."""
LAST_ON_ARM32 = f"1.{LAST_MINOR_ON_ARM32}.15"

# Images.

KUBERNETES_REGISTRY = "registry.k8s.io"
LOCAL_REGISTRY = "k8sdds.local/"
"""Prefix of images that are built here. The registry does not exist, so nodes never pull them."""
ETCD_IMAGE = f"{KUBERNETES_REGISTRY}/etcd:{ETCD}-0"
COREDNS_IMAGE = f"{KUBERNETES_REGISTRY}/coredns/coredns:v{COREDNS}"
PAUSE_IMAGE = f"{KUBERNETES_REGISTRY}/pause:{PAUSE}"
METRICS_SERVER_IMAGE = f"{KUBERNETES_REGISTRY}/metrics-server/metrics-server:v{METRICS_SERVER}"
FLANNEL_IMAGE = f"ghcr.io/flannel-io/flannel:v{FLANNEL}"
KUBE_ROUTER_IMAGE = f"docker.io/cloudnativelabs/kube-router:v{KUBE_ROUTER}"
WEAVE_IMAGE = f"docker.io/rajchaudhuri/weave-kube:{WEAVE}"
ZENOH_IMAGE = f"docker.io/eclipse/zenoh:{ZENOH}"
"""Of the router of applications. Campaigns run it from DISCOVERY_SERVER_IMAGE."""
WEAVE_NPC_IMAGE = f"docker.io/rajchaudhuri/weave-npc:{WEAVE}"
MULTUS_IMAGE = f"{LOCAL_REGISTRY}multus:{MULTUS}"
TOOLS_IMAGE = f"{LOCAL_REGISTRY}tools:{TOOLS}"
PERFTEST_IMAGE = f"{LOCAL_REGISTRY}perftest:{K8SDDS}"
DISCOVERY_SERVER_IMAGE = f"{LOCAL_REGISTRY}discovery-server:{K8SDDS}"
CONNEXT_DISCOVERY_IMAGE_VARIABLE = "K8SDDS_CONNEXT_DISCOVERY_IMAGE"
"""Environment variable that names the user's image of RTI Cloud Discovery Service."""
UNPRIVILEGED_USER = 65532
"""User ID without a name or rights, as which images run their programs."""

# Ports.

SSH_PORT = 22
API_SERVER_PORT = 6443
KUBELET_PORT = 10250
KUBERNETES_PORTS = (API_SERVER_PORT, 2379, 2380, KUBELET_PORT, 10257, 10259)
"""TCP ports of a Kubernetes node: API server, etcd (2), kubelet, controller manager, scheduler."""
METRICS_SERVER_PORT = 4443
"""TCP port of metrics-server on its node, which is the control plane if it can run there."""
# UDP ports of discovery services are defined with the services, in discovery/.

# Namespaces, labels and annotations of Kubernetes objects.

NETWORK_NAMESPACE = "k8sdds-network"
"""Namespace of all objects of networks. It remains when networks are switched."""
SYSTEM_NAMESPACE = "k8sdds-system"
"""Namespace of the services that k8sdds runs on a cluster."""
KUBE_SYSTEM_NAMESPACE = "kube-system"

MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
MANAGED_BY = "k8sdds"
"""Value of MANAGED_BY_LABEL on every object that k8sdds creates."""
NETWORK_LABEL = "k8sdds.io/network"
CAMPAIGN_LABEL = "k8sdds.io/campaign"
PARTICIPANT_LABEL = "k8sdds.io/participant"
ROLE_LABEL = "k8sdds.io/role"
KIND_LABEL = "k8sdds.io/kind"
"""Network of a participant's pod: `host` for the node's own, else `pod`."""

SHA256_ANNOTATION = "k8sdds.io/sha256"
"""Hash of an object as deploy applied it."""
NODE_LABELS_ANNOTATION = "k8sdds.io/labels"
"""Names of the labels that deploy set on a node."""
NODE_TAINTS_ANNOTATION = "k8sdds.io/taints"
"""Lists KEY:EFFECT of the taints of a node that deploy set, which the pods of k8sdds tolerate."""
ENGINE_ANNOTATION = "k8sdds.io/engine"
"""On the DaemonSet of a network: its engine, if it is not the plugin's own."""
PROVEN_ANNOTATION = "k8sdds.io/proven"
"""On SYSTEM_NAMESPACE: what the last smoke test proved."""
OWNER_ANNOTATION = "k8sdds.io/owner"
"""HOST PID START of the process that deletes a namespace or pod."""
NAME_ANNOTATION = "k8sdds.io/name"
"""Full name of the campaign that a namespace belongs to."""
