"""A pod network on a second interface of the pods: macvlan, or a NetworkAttachmentDefinition of the user."""

import json
from ipaddress import IPv4Network

import pytest

from k8sdds import networks, versions
from k8sdds.campaign.expansion import expand
from k8sdds.deploy import bundled_networks, network_install, profiles, smoke_test
from k8sdds.model.profile import PodNetwork, Profile
from k8sdds.model.trial import Cell
from k8sdds.networks import macvlan
from k8sdds.networks.cluster_install import InstallOptions, find
from k8sdds.networks.macvlan.multus import ATTACHMENT as ATTACHMENT_OF_PROFILE
from k8sdds.networks.macvlan.multus import FOOTPRINT
from k8sdds.system.errors import InputError
from k8sdds.testbeds.cluster import datapath, pods, preflight
from k8sdds.testbeds.cluster.blocks import pod_network
from k8sdds.testbeds.cluster.datapath import LinkCounters, NodeLink, PathEnd
from k8sdds.testbeds.cluster.testbed import ClusterTestbed
from k8sdds.testbeds.lab.preflight import _contradiction
from k8sdds.testbeds.selection import SelectedTestbed
from tests.unit import builders

PODS, SERVICES = IPv4Network("10.244.0.0/16"), IPv4Network("10.96.0.0/12")
ATTACHMENT = "lab/cameras"


def cell(**options: object) -> Cell:
    network = {"name": "multus", "attachment": ATTACHMENT, **options}
    sweep = {"networks": [{key: value for key, value in network.items() if value}], "payload_bytes": 64}
    experiment = builders.experiment({"networks": ["host"], "payload_bytes": 64}, sweep, baseline="host")
    return next(one for one in expand(experiment).cells if one.network != "host")


@pytest.mark.parametrize(
    ("pods_", "services", "expected"),
    [
        ("10.244.0.0/16", "10.96.0.0/12", "10.245.0.0/16"),
        ("10.244.0.0/14", "10.96.0.0/12", "10.248.0.0/14"),
        ("10.95.0.0/16", "10.96.0.0/12", "10.112.0.0/16"),
    ],
)
def test_the_subnet_follows_that_of_the_pods_and_avoids_services(
    pods_: str, services: str, expected: str
) -> None:
    assert macvlan.subnet(IPv4Network(pods_), IPv4Network(services)) == IPv4Network(expected)


def test_macvlan_adds_an_interface_to_the_network_of_host() -> None:
    from k8sdds.deploy.network_install import read_manifests

    def rendered(name: str, **options: object) -> list[dict]:  # type: ignore[type-arg]
        install = networks.find(name).cluster
        assert install is not None
        return install.render(InstallOptions((PODS,), (SERVICES,), **options), read_manifests("host"))  # type: ignore[arg-type]

    host, macvlan = rendered("host"), rendered("macvlan", mtu_bytes=1400, interface="eth1")
    first, *others = json.loads(find(host, "ConfigMap", "host-cni")["data"]["cni.json"])["plugins"]
    plugins = json.loads(find(macvlan, "ConfigMap", "host-cni")["data"]["cni.json"])["plugins"]
    assert [plugins[0], *plugins[2:]] == [first, *others]
    assert plugins[1] == {
        "type": "k8sdds-attach", "interface": "net1",
        "delegate": {
            "type": "macvlan", "mode": "bridge", "ipam": {"type": "host-local"}, "mtu": 1400, "master": "eth1",
        },
    }  # fmt: skip


def second(text: str = "") -> Profile:
    head = f"name: two\nnodes: [{{name: a, roles: [control-plane]}}]\n{text}"
    return profiles.parse(f"{head}second_network: macvlan\n", "two.yaml")


@pytest.mark.parametrize(
    ("network", "called"),
    [
        ("flannel-vxlan", "10-flannel.conflist"),
        ("kube-router", "10-kuberouter.conf*"),
        ("weavenet", "10-weave.conf*"),
        ("host", "10-k8sdds-host.conflist"),
    ],
)
def test_multus_calls_the_plugins_of_the_first_network(network: str, called: str) -> None:
    install = network_install.render(second(f"network: {network}\n"))
    files = find(install.manifests, "ConfigMap", "multus-cni")["data"]
    configuration = json.loads(files["00-k8sdds-multus.conf"])
    assert configuration["clusterNetwork"] == f"/etc/cni/net.d/{called}"
    assert json.loads(files["attachment.conf"])["name"] == ATTACHMENT_OF_PROFILE.partition("/")[2]
    assert versions.MULTUS_IMAGE in install.images and len(install.daemonsets) == 2
    alone = network_install.render(second().model_copy(update={"second_network": None}))
    assert versions.MULTUS_IMAGE not in alone.images and len(alone.daemonsets) == 1


def test_multus_creates_definitions_in_its_own_namespace_only() -> None:
    rights = {
        (role["kind"], verb)
        for role in network_install.render(second()).manifests
        if role["kind"] in ("Role", "ClusterRole")
        for rule in role["rules"]
        if "network-attachment-definitions" in rule["resources"]
        for verb in rule["verbs"]
    }
    assert rights == {("ClusterRole", "get"), ("Role", "create")}


def test_files_that_a_killed_agent_left_unfinished_are_removed() -> None:
    files = FOOTPRINT.files
    assert "/etc/cni/net.d/.00-k8sdds-multus.conf.new" in files
    assert "/etc/cni/net.d/k8sdds-multus.d" in files, (
        "those of the token and the kubeconfig are in the folder"
    )


def test_a_second_network_is_another_one_with_ipv4_alone() -> None:
    with pytest.raises(InputError, match="name it once"):
        second("network: macvlan\n")
    with pytest.raises(InputError, match="name it once"):
        second("networks: [macvlan]\n")
    with pytest.raises(InputError, match="macvlan cannot be installed"):
        network_install.render(second("kubernetes: {ip_families: [ipv4, ipv6]}\n"))
    with pytest.raises(InputError, match="already the second network"):
        network_install.render(network_install.with_network(second(), PodNetwork(name="macvlan")))
    # An experiment may name it: it needs no installation of its own.
    experiment = builders.experiment({"networks": ["host", "macvlan"]}, baseline="host")
    required = bundled_networks.required(second(), [experiment])
    assert [network.name for network in required] == ["flannel-vxlan", "host"]


def test_trials_of_a_second_network_need_no_switch() -> None:
    own = {"name": "macvlan", "attachment": ATTACHMENT, "label": "own"}
    sweep = {"networks": ["flannel-vxlan", "macvlan", own]}
    experiment = builders.experiment(sweep, baseline="flannel-vxlan")
    attached = networks.with_attachment(experiment, "macvlan", ATTACHMENT_OF_PROFILE)
    cells = {one.network_label: one for one in expand(attached).cells}
    options = {name: one.network_options.get("attachment") for name, one in cells.items()}
    assert options == {"flannel-vxlan": None, "macvlan": ATTACHMENT_OF_PROFILE, "own": ATTACHMENT}
    assert [name for name, one in cells.items() if pod_network(one)] == ["flannel-vxlan"]


def test_the_smoke_test_uses_the_second_interface() -> None:
    script = smoke_test.script(["a", "b"], "macvlan", "x")
    assert "address show dev net1" in script and "--interface net1" in script
    assert "net1" not in smoke_test.script(["a", "b"], "flannel-vxlan", "x")


def test_the_pods_of_the_smoke_test_request_the_second_network() -> None:
    profile = second()
    network = network_install.render(profile)
    test = smoke_test.of(profile, network)
    assert "k8s.v1.cni.cncf.io/networks" in test.script and "address show dev net1" in test.script
    # A proof from before the test used the second network does not count.
    without = smoke_test.of(profile.model_copy(update={"second_network": None}), network)
    assert without.proof != test.proof and "net1" not in without.script


def end(node: str, moved: dict[str, int]) -> PathEnd:
    def counters(factor: int) -> LinkCounters:
        links = {name: NodeLink("", "", factor * count, factor * count) for name, count in moved.items()}
        return LinkCounters(links, {"192.168.1.1": "eth0", "192.168.1.2": "eth0"})

    return PathEnd(node, {"a": "192.168.1.1", "b": "192.168.1.2"}[node], counters(1), counters(2))


def test_frames_on_the_link_that_pass_no_bridge_are_the_evidence() -> None:
    evidence = macvlan.CLUSTER_INSTALL.path
    direct = [end(node, {"eth0": 1000, "k8sdds0": 20}) for node in "ab"]
    assert datapath.deviation(evidence, *direct, sent_bytes=900) == ""
    assert datapath.describe(evidence, *direct) == "directly on eth0, no tunnel"
    bridged = [end(node, {"eth0": 1000, "k8sdds0": 1000}) for node in "ab"]
    assert datapath.deviation(evidence, *bridged, sent_bytes=900) == "packets pass k8sdds0 of a"
    assert "has sent 0 bytes" in datapath.deviation(evidence, *[end(n, {"eth0": 0}) for n in "ab"], 900)


def test_a_pod_requests_the_attachment_that_the_experiment_names() -> None:
    one = cell()
    (publisher,) = (each for each in one.participants if each.publishes)
    slot = pods.Slot.of(publisher, "a", False, one)
    assert (slot.interface, slot.attachment) == ("net1", ATTACHMENT)
    manifest = pods.pod("x", slot, "image", "c", (1, 1))
    (selected,) = json.loads(manifest["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"])
    assert selected == {"namespace": "lab", "name": "cameras", "interface": "net1"}
    own = pods.Slot.of(
        publisher, "a", False, one.model_copy(update={"network": "macvlan", "network_options": {}})
    )
    assert own.interface == "net1" and not pods.pod("x", own, "image", "c", (1, 1))["metadata"]["annotations"]


def test_wrong_options_of_attachments_are_rejected() -> None:
    multus = networks.find("multus")
    assert "set `attachment`" in str(multus.options_error({}))
    assert "determines the mtu" in str(multus.options_error({"attachment": ATTACHMENT, "mtu": 1400}))
    assert multus.options_error({"attachment": ATTACHMENT}) is None
    assert "option of multus and macvlan" in str(
        networks.find("host").options_error({"attachment": ATTACHMENT})
    )
    with pytest.raises(ValueError, match="attachment"):
        cell(attachment="cameras")


def test_the_lab_refuses_an_attachment() -> None:
    problem = _contradiction(cell(name="macvlan"))
    assert problem is not None and "no NetworkAttachmentDefinitions" in problem.what
    assert problem.remedy == "leave out attachment" and problem.input
    assert _contradiction(cell(name="macvlan", attachment=None)) is None


class Api:
    """An API server with one NetworkAttachmentDefinition."""

    def __init__(self, allowed: bool) -> None:
        self.allowed = allowed

    def is_allowed(self, *right: str, **where: str) -> bool:
        return self.allowed

    def get(self, path: str) -> dict[str, object]:
        node = {"metadata": {"name": "a", "annotations": {"k8s.v1.cni.cncf.io/network-status": ""}}}
        agent = {"metadata": {"name": "kube-multus-ds"}, "status": {"numberReady": 1}}
        return {
            "items": [node] if path.endswith("/nodes") else [agent] if path.endswith("/daemonsets") else []
        }

    def find(self, path: str) -> dict[str, object] | None:
        known = "/apis/k8s.cni.cncf.io/v1/namespaces/lab/network-attachment-definitions/cameras"
        return {} if path == known else None


def test_a_missing_attachment_is_reported_before_the_campaign() -> None:
    present, missing = cell(), cell(attachment="lab/radars")
    (problem,) = preflight.attachment_problems([present, missing], Api(True))  # type: ignore[arg-type]
    assert "lab/radars" in problem.what
    assert not preflight.attachment_problems([present, missing], Api(False))  # type: ignore[arg-type]


def test_multus_is_detected_next_to_a_network_that_the_user_named() -> None:
    selected = SelectedTestbed("cluster", network="flannel-vxlan")
    with ClusterTestbed(Api(True), selected, "c") as testbed:  # type: ignore[arg-type]
        assert testbed.networks() == ["host", "flannel-vxlan", "multus"]


def test_a_discovery_server_is_not_on_a_second_interface() -> None:
    one = cell().model_copy(update={"middleware": "fastdds", "discovery": "server"})
    assert any(
        "discovery server" in problem.what for problem in preflight.unsupported([one], can_switch=True)
    )
