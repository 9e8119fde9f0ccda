"""`k8sdds policy`: print the NetworkPolicies of an application, or verify them on a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from k8sdds.cli.commands import Commands, option
from k8sdds.cli.options import ClusterOptions, Context, Kubeconfig, TestbedName, any_given
from k8sdds.cli.recommend import ApplicationFile
from k8sdds.cli.run import ending
from k8sdds.cli.terminal import print_line, print_step, print_text
from k8sdds.cli.testbed import cluster_api, select
from k8sdds.system.errors import InputError
from k8sdds.testbeds.selection import CLUSTER, SelectedTestbed

if TYPE_CHECKING:
    from k8sdds.model.application import Application
    from k8sdds.recommend.network_policy import Communication

app = Commands()


@app.add(
    "k8sdds policy mont-blanc --middleware fastdds --discovery server --domain 7",
    "k8sdds policy ./my-robot.yaml --discovery multicast --network weavenet",
    "k8sdds policy teleoperation --verify --kubeconfig ~/.kube/config",
)
def policy(
    application: ApplicationFile,
    middleware: Annotated[
        str, "--middleware NAME: cyclonedds, fastdds, ros2-fastdds, connext, zenoh, zenoh-udp or zenoh-quic."
    ] = "cyclonedds",
    domain: Annotated[
        int,
        option(
            "--domain N: DDS domain (ROS_DOMAIN_ID). Ports of higher ones can be ephemeral.", min=0, max=101
        ),
    ] = 0,
    processes: Annotated[
        int, option("--processes N: Processes in each pod, each with one participant.", min=1, max=100)
    ] = 1,
    discovery: Annotated[
        Literal["peers", "multicast", "server"],
        "--discovery HOW: peers, multicast or server: how participants find each other.",
    ] = "peers",
    group: Annotated[
        str | None,
        "--group ADDRESS: Multicast group, of IPv4 or IPv6, for --discovery multicast. Default: that of DDS.",
    ] = None,
    network: Annotated[str | None, "--network NETWORK: Network of the cluster. Default: not stated."] = None,
    verify: Annotated[
        bool, "--verify: Create them and test pods on a cluster, show what passes, and delete them again."
    ] = False,
    on: TestbedName = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Print the smallest NetworkPolicies that admit the flows of an application.

    Comments in the output state the labels that pods need, and what policies cannot express.
    With --verify, test pods in a namespace of their own prove that the cluster enforces them.
    """
    from k8sdds.campaign import applications
    from k8sdds.recommend.network_policy import Communication, text

    used = Communication(middleware, domain, processes, discovery, group, network)
    loaded = applications.load(application)
    policies = text(loaded, used).rstrip("\n")
    if verify:
        _verify(loaded, used, select(on, ClusterOptions(kubeconfig, context)))
        return
    if any_given(on, kubeconfig, context):
        raise InputError("without --verify, no cluster is used", "add --verify, or leave out its options")
    print_text(policies)


def _verify(application: Application, used: Communication, selected: SelectedTestbed) -> None:
    from k8sdds.campaign.preflight import refuse
    from k8sdds.campaign.start import campaign_name
    from k8sdds.recommend import policy_verification
    from k8sdds.testbeds.cluster import permissions, preflight
    from k8sdds.testbeds.cluster.testbed import ClusterTestbed

    policy_verification.check(used)
    if selected.testbed != CLUSTER or selected.namespace:
        remedy = "add --testbed NAME or --kubeconfig FILE; a testbed with --namespace is not possible"
        raise InputError("--verify needs a cluster, and a namespace of its own there", remedy)
    print_step(f"Testbed: {selected.describe()}")
    title = campaign_name(f"policies-{application.name}")
    created: list[str] = []

    def kept() -> tuple[str, str]:
        return "; the namespace of the test is being deleted" if created else "", ""

    with ending(kept), cluster_api(selected) as client:
        refuse(permissions.missing_rights(client, None) or preflight.policy_rights(client, None))
        testbed = ClusterTestbed(client, selected, title)
        used = policy_verification.on_installed(used, testbed.installed.name)
        refuse(policy_verification.disturbed_campaigns(client))
        findings = policy_verification.verify(testbed, title, application, used, print_line, created.append)
        print_line(f"{testbed.installed.title} enforces the policies: all {len(findings)} checks as stated")
