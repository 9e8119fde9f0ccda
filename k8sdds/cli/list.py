"""`k8sdds list`: list the experiments or the networks."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from k8sdds.cli.output import TABLE, Json, RowsFormat, choose, print_result, print_table
from k8sdds.cli.terminal import format_duration, print_step


def list_(
    networks: Annotated[
        bool, typer.Option("--networks", help="List the networks instead of the experiments.")
    ] = False,
    as_json: Json = False,
    form: RowsFormat = "table",
) -> None:
    """List the installed experiments, or the networks."""
    form = choose(form, as_json)
    rows = _networks() if networks else _experiments()
    print_result(form, rows, lambda: print_table(rows))
    if form == TABLE and not networks:
        print_step("\nTry: k8sdds show NAME, k8sdds run NAME. NAME can also be the path of a YAML file.")


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
