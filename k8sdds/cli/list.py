"""`k8sdds list`: list the experiments, the networks or the studies."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from k8sdds.cli.output import TABLE, Json, RowsFormat, choose, print_result, print_table
from k8sdds.cli.terminal import format_duration, print_step
from k8sdds.system.errors import InputError


def list_(
    networks: Annotated[
        bool, typer.Option("--networks", help="List the networks instead of the experiments.")
    ] = False,
    studies: Annotated[
        bool, typer.Option("--studies", help="List the studies whose claims k8sdds can test.")
    ] = False,
    as_json: Json = False,
    form: RowsFormat = "table",
) -> None:
    """List the installed experiments, the networks or the studies."""
    form = choose(form, as_json)
    if networks and studies:
        raise InputError("--networks and --studies exclude each other", "leave out one of them")
    rows = _networks() if networks else _studies() if studies else _experiments()
    print_result(form, rows, lambda: print_table(rows))
    if form == TABLE and not networks:
        commands = "k8sdds reproduce NAME" if studies else "k8sdds show NAME, k8sdds run NAME"
        print_step(f"\nTry: {commands}. NAME can also be the path of a YAML file.")


def _experiments() -> list[dict[str, Any]]:
    from k8sdds.campaign import experiments, preflight
    from k8sdds.campaign.expansion import expand

    rows = []
    for name in experiments.names():
        expansion = expand(experiments.load(name))
        rows.append(
            {
                "name": name,
                "trials": len(expansion.trials("lab")),
                "takes": format_duration(preflight.estimate_s(expansion)),
                "question": expansion.experiment.title,
                "paper": expansion.experiment.paper,
            }
        )
    return rows


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


def _studies() -> list[dict[str, Any]]:
    from k8sdds.claims import files, study

    rows = []
    for name in files.names():
        loaded = files.load(name)
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
