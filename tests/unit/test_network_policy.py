"""NetworkPolicies of applications: their form is that of Kubernetes, and they admit flows of the application only."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from kubernetes import client
from ruamel.yaml import YAML

from k8sdds import middleware
from k8sdds.campaign import applications
from k8sdds.discovery import MULTICAST, PEERS, SERVER
from k8sdds.middleware.protocol import Middleware
from k8sdds.model.application import Application
from k8sdds.recommend import network_policy
from k8sdds.recommend.network_policy import COMPONENT, NAME, PART_OF, Communication
from k8sdds.system.errors import InputError

USABLE = [name for name, each in middleware.MIDDLEWARES.items() if type(each).ports is not Middleware.ports]
FLOW = {"name": "scans", "payload_bytes": 100, "rate": 10}


def application(**changes: Any) -> Application:
    return Application.model_validate({"name": "robot", "flows": [FLOW]} | changes)


def by_component(used: Communication, loaded: Application | None = None) -> dict[str, dict[str, Any]]:
    return {
        policy["spec"]["podSelector"]["matchLabels"].get(COMPONENT, NAME): policy["spec"]
        for policy in network_policy.policies(loaded or application(), used)
    }


def as_kubernetes_reads_it(policy: dict[str, Any]) -> Any:
    """Return a policy after its way through the client's model, which ignores unknown fields."""
    api = client.ApiClient()
    read = api.deserialize(json.dumps(policy), "V1NetworkPolicy", "application/json")
    return api.sanitize_for_serialization(read)


def check_printed(loaded: Application, used: Communication) -> None:
    text = network_policy.text(loaded, used)
    printed = list(YAML(typ="safe").load_all(io.StringIO(text)))
    assert printed == network_policy.policies(loaded, used)
    assert all(as_kubernetes_reads_it(policy) == policy for policy in printed)
    assert len({policy["metadata"]["name"] for policy in printed}) == len(printed)
    assert "&id" not in text


@pytest.mark.parametrize("name", applications.APPLICATIONS.names())
def test_the_policies_of_each_application_are_those_of_kubernetes(name: str) -> None:
    check_printed(applications.load(name), Communication())


@pytest.mark.parametrize("discovery", [PEERS, MULTICAST, SERVER])
@pytest.mark.parametrize("name", USABLE)
def test_the_policies_of_each_middleware_are_those_of_kubernetes(name: str, discovery: str) -> None:
    used = Communication(name, 101, 3, discovery)
    no_service = discovery == SERVER and middleware.find(name).service is None
    if no_service or (name.startswith("zenoh") and discovery == MULTICAST):
        with pytest.raises(InputError):
            network_policy.text(application(), used)
    else:
        check_printed(application(), used)


def test_only_nodes_that_share_a_flow_reach_each_other() -> None:
    nodes = {"lidar": {"publishes": "scans"}, "map": {"subscribes": "scans", "publishes": "grid"}}
    nodes |= {"planner": {"subscribes": "grid"}}
    chain = application(flows=[FLOW, {**FLOW, "name": "grid"}], nodes=nodes)
    found = by_component(Communication(domain=2), chain)
    ports = [{"protocol": "UDP", "port": port} for port in (7910, 7911)]
    for own, peers in {"lidar": ["map"], "planner": ["map"], "map": ["lidar", "planner"]}.items():
        (ingress,), (egress, dns) = found[own]["ingress"], found[own]["egress"]
        assert ingress == {"from": egress["to"], "ports": ports}
        assert egress["ports"] == ports
        selector = ingress["from"][0]["podSelector"]
        assert selector["matchLabels"][PART_OF] == "robot"
        expressions = selector.get("matchExpressions", [{"values": [selector["matchLabels"].get(COMPONENT)]}])
        assert expressions[0]["values"] == peers
        assert {port["port"] for port in dns["ports"]} == {53}


def test_each_process_of_a_pod_has_its_ports() -> None:
    (ingress,) = by_component(Communication(processes=2))["scans-publisher"]["ingress"]
    assert [port["port"] for port in ingress["ports"]] == [7410, 7411, 7412, 7413]


def test_samples_by_multicast_have_a_port_of_their_own() -> None:
    spec = by_component(Communication(domain=2, discovery=MULTICAST))["scans-publisher"]
    assert [port["port"] for port in spec["egress"][1]["ports"]] == [7900, 7901]
    assert {7900, 7901} < {port["port"] for port in spec["ingress"][0]["ports"]}


@pytest.mark.parametrize(
    ("name", "processes", "needed"),
    [
        ("cyclonedds", 11, "MaxAutoParticipantIndex` must be at least 10"),
        ("fastdds", 5, "maxInitialPeersRange` of the transport must be at least 5"),
    ],
)
def test_the_output_states_which_limit_on_processes_to_raise(name: str, processes: int, needed: str) -> None:
    def joined(count: int) -> str:
        return network_policy.text(application(), Communication(name, processes=count)).replace("\n#  ", "")

    assert needed in joined(processes)
    assert needed.partition("`")[0] not in joined(processes - 1)


def test_clients_of_a_zenoh_router_reach_only_the_router() -> None:
    found = by_component(Communication("zenoh", discovery=SERVER))
    assert found["scans-publisher"]["ingress"] == []
    assert found["scans-publisher"]["egress"][0]["ports"] == [{"protocol": "TCP", "port": 7447}]
    assert found[NAME]["ingress"][0]["ports"] == [{"protocol": "TCP", "port": 7447}]
    assert found[NAME]["egress"] == []


def test_the_group_may_be_one_of_ipv6() -> None:
    found = by_component(Communication(discovery=MULTICAST, group="ff15::efff:1"))
    egress = found["scans-publisher"]["egress"]
    assert {"ipBlock": {"cidr": "ff15::efff:1/128"}} in egress[1]["to"]


@pytest.mark.parametrize(
    ("used", "message"),
    [
        (Communication("zenoh", discovery=MULTICAST), "no policy can name"),
        (Communication(discovery=SERVER), "cyclonedds has no discovery service"),
        (Communication("raw"), "the ports of raw are unknown"),
        (Communication(domain=101, processes=100), "ports up to 32859, which can be ephemeral"),
        (Communication(discovery=MULTICAST, group="ff02::1%eth0"), "not the address of a multicast group"),
        (Communication(group="239.255.0.7"), "--group requires --discovery multicast"),
        (Communication(network="weave"), "whether 'weave' enforces policies .did you mean 'weavenet'"),
        (Communication("fastdss"), "unknown middleware 'fastdss' .did you mean"),
        (Communication(discovery=MULTICAST, group="10.0.0.1"), "not the address of a multicast group"),
        (Communication(discovery=MULTICAST, network="flannel-vxlan"), "carries no multicast"),
        (Communication(network="antrea"), "does not know whether 'antrea' enforces policies"),
    ],
)
def test_what_no_policy_can_express_is_refused(used: Communication, message: str) -> None:
    with pytest.raises(InputError, match=message):
        network_policy.text(application(), used)


def test_the_remedy_lists_all_middlewares_with_ports() -> None:
    with pytest.raises(InputError) as refused:
        network_policy.text(application(), Communication("raw"))
    assert refused.value.remedy == f"give one of these to --middleware: {', '.join(USABLE)}"


def test_ros2_has_the_ports_of_fast_dds() -> None:
    ros2, fastdds = (
        network_policy.policies(application(), Communication(name)) for name in ("ros2-fastdds", "fastdds")
    )
    assert ros2 == fastdds


def test_a_node_with_the_name_of_the_discovery_service_is_refused() -> None:
    nodes = {"k8sdds-discovery": {"publishes": "scans"}, "map": {"subscribes": "scans"}}
    with pytest.raises(InputError, match="the node k8sdds-discovery has the name of the discovery service"):
        network_policy.text(application(nodes=nodes), Communication("fastdds", discovery=SERVER))


def test_names_that_cannot_be_labels_are_refused() -> None:
    with pytest.raises(InputError, match="cannot be a label"):
        network_policy.text(application(name="robot-"), Communication())


@pytest.mark.parametrize(
    ("network", "limit"), [("kube-router", "enforces policies"), ("flannel-vxlan", "ignores policies")]
)
def test_the_output_states_whether_the_network_enforces_policies(network: str, limit: str) -> None:
    assert f"{network} {limit}" in network_policy.text(application(), Communication(network=network))
