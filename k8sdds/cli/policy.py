"""`k8sdds policy`: print the NetworkPolicies of an application."""

from __future__ import annotations

from typing import Annotated, Literal

from k8sdds.cli.commands import Commands, option
from k8sdds.cli.recommend import ApplicationFile
from k8sdds.cli.terminal import print_text

app = Commands()


@app.add(
    "k8sdds policy teleoperation",
    "k8sdds policy mont-blanc --middleware fastdds --discovery server --domain 7",
    "k8sdds policy ./my-robot.yaml --discovery multicast --network weavenet",
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
) -> None:
    """Print the smallest NetworkPolicies that admit the flows of an application.

    Comments in the output state the labels that pods need, and what policies cannot express.
    """
    from k8sdds.campaign import applications
    from k8sdds.recommend.network_policy import Communication, text

    used = Communication(middleware, domain, processes, discovery, group, network)
    print_text(text(applications.load(application), used).rstrip("\n"))
