"""Objects that every network installs on a cluster, rendered from profiles without a cluster."""

import base64
import json
import re
from typing import Any

import pytest

from k8sdds import networks, versions
from k8sdds.deploy import profiles
from k8sdds.deploy.network_install import RenderedNetwork, cluster_install, read_manifests, render
from k8sdds.model.profile import Profile
from k8sdds.networks.cluster_install import container, find, images
from k8sdds.system import yaml_text
from k8sdds.system.errors import InputError

PASSWORDS = networks.pod_networks()
NAMES = list(PASSWORDS)
PASSWORD = "0123456789abcdef" * 6
PROFILE = """\
name: mine
nodes:
  - {name: master, roles: [control-plane]}
  - {name: pi1}
"""
NEED_PRIVILEGED = {"calico-node", "kube-router", "weave", "weave-kube-init", "weave-npc"}
"""Containers of upstream programs that write sysctls or load modules, as comments in deploy/networks explain."""
NETWORK = {"NET_ADMIN", "NET_RAW", "NET_BIND_SERVICE"}
BPF = NETWORK | {"BPF", "CHOWN", "DAC_OVERRIDE", "IPC_LOCK", "PERFMON", "SYS_ADMIN"}
"""Capabilities of a container that loads BPF programs."""


def profile(name: str, options: str = "", more: str = "") -> Profile:
    secret = ", password_file: psk" if PASSWORDS[name] else ""
    text = f"{PROFILE}network: {{name: {name}{secret}{options}}}\n{more}"
    return yaml_text.parse(text, Profile, "mine.yaml")


def installed(name: str, options: str = "", more: str = "") -> RenderedNetwork:
    return render(profile(name, options, more), PASSWORD if PASSWORDS[name] else None)


def pods(found: RenderedNetwork) -> list[dict[str, Any]]:
    return [obj["spec"]["template"]["spec"] for obj in found.manifests if obj["kind"] == "DaemonSet"]


def containers(found: RenderedNetwork) -> list[dict[str, Any]]:
    return [part for pod in pods(found) for part in (*pod.get("initContainers", ()), *pod["containers"])]


def test_the_schema_of_profiles_lists_the_installable_networks() -> None:
    assert profiles.schema()["$defs"]["PodNetwork"]["properties"]["name"]["enum"] == NAMES
    with pytest.raises(InputError, match="cannot be installed"):
        cluster_install("baremetal")


@pytest.mark.parametrize("name", NAMES)
def test_objects_are_complete_and_in_order(name: str) -> None:
    installation = installed(name)
    assert (
        installation.manifests[0]["kind"] == "Namespace"
        and installation.manifests[0]["metadata"]["name"] == versions.NETWORK_NAMESPACE
    )
    ids = [(obj["kind"], obj["metadata"]["name"]) for obj in installation.manifests]
    assert len(ids) == len(set(ids))
    for obj in installation.manifests:
        assert obj["apiVersion"] and obj["metadata"]["name"]
        cluster_wide = obj["kind"] in (
            "Namespace", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition",
        )  # fmt: skip
        # Weave requires the list of its peers in kube-system.
        namespaces = {versions.NETWORK_NAMESPACE, *(["kube-system"] if "weave" in name else [])}
        assert obj["metadata"].get("namespace") in ({None} if cluster_wide else namespaces)
    assert find(list(installation.manifests), "DaemonSet", cluster_install(name).daemonset)
    assert installation.mtu_bytes == networks.find(name).default_mtu
    assert json.loads(json.dumps(installation.manifests))


@pytest.mark.parametrize("name", NAMES)
def test_pods_have_only_necessary_privileges(name: str) -> None:
    installation = installed(name)
    for pod in pods(installation):
        assert pod["hostNetwork"] and pod["priorityClassName"] == "system-node-critical"
        assert pod["tolerations"] == [{"operator": "Exists"}]
    for part in containers(installation):
        rights = part["securityContext"]
        if part["name"] in NEED_PRIVILEGED:
            assert rights["privileged"] is True
        else:
            assert not rights.get("privileged") and rights["allowPrivilegeEscalation"] is False
            assert rights["capabilities"]["drop"] == ["ALL"]
            added = set(rights["capabilities"].get("add", ()))
            assert added <= (BPF if part["name"] == "cilium-agent" else NETWORK)
        assert part["resources"]["requests"] and part["resources"]["limits"]["memory"]
        # A continuous probe would disturb measurements.
        assert "readinessProbe" not in part and "livenessProbe" not in part


@pytest.mark.parametrize("name", NAMES)
def test_api_permissions_have_no_wildcards(name: str) -> None:
    for obj in installed(name).manifests:
        for rule in obj.get("rules", ()):
            names = [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            assert not any("*" in name for name in names), rule
            assert "secrets" not in rule["resources"]
            assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"]), rule
            # Calico and Cilium store their state in resources of their own; Calico renews its plugin's token.
            own = rule["apiGroups"] in (["crd.projectcalico.org"], ["cilium.io"]) or (
                rule["resources"] == ["serviceaccounts/token"] and rule["resourceNames"] == ["calico-plugin"]
            )
            assert own or not {"create", "delete"} & set(rule["verbs"]), rule


@pytest.mark.parametrize("name", NAMES)
def test_images_are_pinned_and_pulled_only_if_missing(name: str) -> None:
    installation = installed(name)
    assert installation.images == images(list(installation.manifests)) and installation.images
    for image in installation.images:
        assert re.fullmatch(r"[a-z0-9.]+/[a-z0-9./-]+:v?[0-9][A-Za-z0-9.-]*(@sha256:[0-9a-f]{64})?", image), (
            image
        )
    assert {part["imagePullPolicy"] for part in containers(installation)} == {"IfNotPresent"}


@pytest.mark.parametrize("name", NAMES)
def test_passwords_are_only_in_secrets(name: str) -> None:
    installation = installed(name)
    for obj in installation.manifests:
        if obj["kind"] != "Secret":
            assert PASSWORD not in json.dumps(obj)
        else:
            assert "stringData" not in obj
    assert PASSWORD not in repr(installation)
    if PASSWORDS[name]:
        assert "Secret" in {obj["kind"] for obj in installation.manifests}


@pytest.mark.parametrize("name", NAMES)
def test_rendering_does_not_modify_the_manifest(name: str) -> None:
    assert installed(name, ", mtu: 1300, interface: eth1") != installed(name)
    assert installed(name) == installed(name)
    assert read_manifests(cluster_install(name).manifest_folder) == read_manifests(
        cluster_install(name).manifest_folder
    )


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("flannel-vxlan", {"Type": "vxlan", "VNI": 1, "Port": 8472}),
        ("flannel-hostgw", {"Type": "host-gw"}),
        ("flannel-ipsec", {"Type": "ipsec", "PSK": PASSWORD}),
        ("flannel-wireguard", {"Type": "wireguard", "ListenPort": 51820}),
    ],
)
def test_flannel(name: str, backend: dict[str, Any]) -> None:
    cidr = "kubernetes: {pod_cidr: 10.50.0.0/16}\n"
    manifests = list(installed(name, ", mtu: 1300, interface: eth1", cidr).manifests)
    secret = find(manifests, "Secret", "flannel-net")["data"]["net-conf.json"]
    net = json.loads(base64.b64decode(secret))
    assert net == {"Network": "10.50.0.0/16", "EnableNFTables": False, "Backend": backend}
    cni = json.loads(find(manifests, "ConfigMap", "flannel-cni")["data"]["10-flannel.conflist"])
    assert cni["plugins"][0]["delegate"]["mtu"] == 1300
    daemonset = find(manifests, "DaemonSet", "flannel")
    agent = container(daemonset, "flanneld")
    assert "--iface=eth1" in agent["args"]
    charon = "NET_BIND_SERVICE" in agent["securityContext"]["capabilities"]["add"]
    assert charon == (name == "flannel-ipsec")
    plain = list(installed(name).manifests)
    assert "--iface" not in json.dumps(plain)
    assert "mtu" not in find(plain, "ConfigMap", "flannel-cni")["data"]["10-flannel.conflist"]


def test_the_flannel_plugin_comes_from_an_image_unless_a_bundle_contains_it() -> None:
    assert any("flannel-cni-plugin" in image for image in installed("flannel-vxlan").images)
    bundled = installed("flannel-vxlan", more="software: bundle\n")
    assert bundled.images == ("ghcr.io/flannel-io/flannel:v0.28.4",)


def test_kube_router() -> None:
    installation = installed("kube-router", ", mtu: 1400")
    agent = container(find(list(installation.manifests), "DaemonSet", "kube-router"), "kube-router")
    assert {"--run-service-proxy=false", "--auto-mtu=false"} <= set(agent["args"])
    assert "--service-cluster-ip-range=10.96.0.0/12" in agent["args"]
    assert "--auto-mtu=false" not in json.dumps(installed("kube-router").manifests)


def test_weave_uses_userspace_only_on_request() -> None:
    own, sleeve = (
        find(list(installed("weavenet", options).manifests), "DaemonSet", "weave")
        for options in ("", ", engine: sleeve")
    )
    variable = {"name": "WEAVE_NO_FASTDP", "value": "1"}
    assert variable in container(sleeve, "weave")["env"] and variable not in container(own, "weave")["env"]
    assert sleeve["metadata"]["annotations"] == {versions.ENGINE_ANNOTATION: "sleeve"}
    with pytest.raises(InputError, match="weavenet-encrypt has no engine sleeve on a cluster"):
        installed("weavenet-encrypt", ", engine: sleeve")


@pytest.mark.parametrize(("name", "mtu"), [("weavenet", "1438"), ("weavenet-encrypt", "1414")])
def test_weave(name: str, mtu: str) -> None:
    manifests = list(installed(name).manifests)
    agent = container(find(manifests, "DaemonSet", "weave"), "weave")
    values = {item["name"]: item.get("value", item.get("valueFrom")) for item in agent["env"]}
    assert values["IPALLOC_RANGE"] == "10.244.0.0/16" and values["WEAVE_MTU"] == mtu
    secret = {"secretKeyRef": {"name": "weave-password", "key": "password"}}
    assert values.get("WEAVE_PASSWORD") == (secret if name == "weavenet-encrypt" else None)
    secrets = [item for item in manifests if item["kind"] == "Secret"]
    assert [base64.b64decode(item["data"]["password"]).decode() for item in secrets] == (
        [PASSWORD] if name == "weavenet-encrypt" else []
    )
    own = list(installed(name, ", mtu: 1376").manifests)
    assert '"1376"' in json.dumps(container(find(own, "DaemonSet", "weave"), "weave")["env"])


def test_the_agent_of_host_gets_the_pod_range() -> None:
    manifests = list(installed("host", ", mtu: 1400", "kubernetes: {pod_cidr: 10.50.0.0/16}\n").manifests)
    agent = container(find(manifests, "DaemonSet", "host"), "routes")
    assert agent["args"] == ["--pods=10.50.0.0/16"]
    assert agent["securityContext"]["readOnlyRootFilesystem"] is True
    bridge = json.loads(find(manifests, "ConfigMap", "host-cni")["data"]["cni.json"])["plugins"][0]
    assert bridge["mtu"] == 1400 and bridge["bridge"] == "k8sdds0"
