"""Install macvlan as a second network next to another one, with Multus: only pods that request it have the interface.

Facts from the sources of Multus (4.2): the plugin calls the plugins of the file `clusterNetwork` for the first
interface. An attachment without a configuration has that of the node's file in the folder `confDir` whose `name` is
that of the attachment.
"""

from __future__ import annotations

import json

from k8sdds import versions
from k8sdds.networks import macvlan
from k8sdds.networks.cluster_install import (
    ClusterInstall,
    Footprint,
    InstallOptions,
    Manifest,
    container,
    find,
)
from k8sdds.networks.network import SECOND_INTERFACE

AGENT = "multus"
"""Name of the DaemonSet, in the namespace of networks."""
ATTACHMENT_NAME = "k8sdds-macvlan"
ATTACHMENT = f"{versions.NETWORK_NAMESPACE}/{ATTACHMENT_NAME}"
"""The NetworkAttachmentDefinition that pods request, as NAMESPACE/NAME."""
DEFINITION = "network-attachment-definitions.k8s.cni.cncf.io"
"""The CustomResourceDefinition that every installation of Multus creates."""
MANIFEST_FOLDER = "multus"
"""Folder with `manifest.yaml`, below deploy/networks."""
_CONFIGURATIONS = "/etc/cni/net.d"
_FOLDER, _FILE, _PLUGIN = f"{_CONFIGURATIONS}/k8sdds-multus.d", "00-k8sdds-multus.conf", "k8sdds-multus"
_STATE = "/var/lib/cni/k8sdds-multus"

FOOTPRINT = Footprint(
    files=(
        f"{_CONFIGURATIONS}/{_FILE}", f"{_CONFIGURATIONS}/.{_FILE}.new", _FOLDER,
        f"/opt/cni/bin/{_PLUGIN}", f"/opt/cni/bin/.{_PLUGIN}", _STATE,
        f"/var/lib/cni/networks/{ATTACHMENT_NAME}", f"/var/lib/cni/results/{_PLUGIN}-*",
    ),
)  # fmt: skip


def request(attachment: str) -> dict[str, str]:
    """Return the annotations with which a pod requests its second interface; none without an attachment.

    Multus and compatible plugins add it. `attachment`: NAMESPACE/NAME of a NetworkAttachmentDefinition.
    """
    if not attachment:
        return {}
    namespace, _, name = attachment.partition("/")
    selected = [{"namespace": namespace, "name": name, "interface": SECOND_INTERFACE}]
    return {"k8s.v1.cni.cncf.io/networks": json.dumps(selected)}


def render(options: InstallOptions, first: ClusterInstall, manifests: list[Manifest]) -> list[Manifest]:
    """Return the objects of Multus next to the network `first`; modifies the given objects of its manifest."""
    # The agent replaces the pattern by the file's name.
    called = next(path for path in first.footprint.files if path.startswith(f"{_CONFIGURATIONS}/"))
    multus = {
        "cniVersion": "0.4.0", "name": _PLUGIN, "type": _PLUGIN, "capabilities": {"portMappings": True},
        "clusterNetwork": called, "kubeconfig": f"{_FOLDER}/kubeconfig", "confDir": _FOLDER, "cniDir": _STATE,
    }  # fmt: skip
    attachment = {"cniVersion": "0.4.0", "name": ATTACHMENT_NAME, **macvlan.plugin(None, options.interface)}
    files = {_FILE: multus, "attachment.conf": attachment}
    texts = {name: json.dumps(content, indent=1) for name, content in files.items()}
    find(manifests, "ConfigMap", "multus-cni")["data"] |= texts
    container(find(manifests, "DaemonSet", AGENT), "attach")["args"] = [
        "--multus", f"--pods={options.pod_cidr}", f"--second={macvlan.second_subnet(options)}",
        "--template=/etc/k8sdds-host/attachment.conf", f"--configuration={_FOLDER}/attachment.conf",
    ]  # fmt: skip
    return manifests
