"""`k8sdds list`: list the experiments, applications, networks, links or studies."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from k8sdds.cli.commands import Commands
from k8sdds.cli.output import RowsOutput
from k8sdds.cli.terminal import print_step
from k8sdds.system.numbers import format_duration

app = Commands()


@app.add("k8sdds list applications", "k8sdds list networks", "k8sdds list links")
def list_(
    kind: Annotated[
        Literal["experiments", "applications", "networks", "links", "studies"],
        "KIND: experiments, applications, networks, links or studies.",
    ] = "experiments",
    *,
    out: RowsOutput,
) -> None:
    """List the installed experiments (the shortest first), applications, networks, links or studies."""
    find, commands = {
        "experiments": (
            _experiments,
            "show NAME, k8sdds run NAME; for your application: k8sdds list applications",
        ),
        "applications": (_applications, "show NAME, k8sdds recommend NAME"),
        "networks": (_networks, "run quickstart --network NAME"),
        "links": (_links, "show NAME, k8sdds recommend teleoperation --link NAME"),
        "studies": (_studies, "reproduce NAME"),
    }[kind]
    rows = find()
    out.print(rows)
    if out.is_text:
        print_step(f"\nTry: k8sdds {commands}")


def _experiments() -> list[dict[str, Any]]:
    from k8sdds.campaign import experiments, preflight
    from k8sdds.campaign.expansion import expand

    expansions = [expand(experiments.load(name)) for name in experiments.EXPERIMENTS.names()]
    # The first one to run, then those that answer soonest.
    expansions.sort(key=lambda each: (each.experiment.name != experiments.FIRST, preflight.estimate_s(each)))
    return [
        {
            "name": expansion.experiment.name,
            "trials": len(expansion.trials("lab")),
            "takes": format_duration(preflight.estimate_s(expansion)),
            "question": expansion.experiment.title,
            "paper": expansion.experiment.paper,
        }
        for expansion in expansions
    ]


def _networks() -> list[dict[str, Any]]:
    from k8sdds.networks import NETWORKS

    return [
        {
            "name": network.name,
            "layer": network.layer,
            "encapsulation": network.encapsulation,
            "encryption": network.encryption,
            "engines": [engine.title for engine in network.engines],
            "mtu": network.default_mtu,
            "multicast": network.multicast,
            "policy": network.policy,
            "in_the_lab": network.fidelity,
        }
        for network in NETWORKS.values()
    ]


def _applications() -> list[dict[str, Any]]:
    from k8sdds.campaign import applications

    return [
        {
            "name": name,
            "flows": len(loaded.flows),
            "nodes": len(loaded.nodes) or None,
            "requirements": sum(1 for _ in loaded.requirements),
            "title": loaded.title,
        }
        for name in applications.APPLICATIONS.names()
        for loaded in [applications.load(name)]
    ]


def _links() -> list[dict[str, Any]]:
    from k8sdds import links

    return [{"name": name, "title": links.load(name).title} for name in links.LINKS.names()]


def _studies() -> list[dict[str, Any]]:
    from k8sdds import claims
    from k8sdds.claims import study

    rows = []
    for name in claims.CLAIMS.names():
        loaded = claims.load(name)
        campaigns = study.campaigns(loaded.claims, in_lab=True)
        rows.append(
            {
                "name": name,
                "claims": len(loaded.claims),
                "tested_in_the_lab": sum(len(campaign.claims) for campaign in campaigns),
                "takes": format_duration(60 * sum(campaign.minutes for campaign in campaigns)),
                "study": loaded.source or loaded.title,
            }
        )
    return rows
