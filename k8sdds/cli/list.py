"""`k8sdds list`: list the experiments or the networks."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from k8sdds.cli.options import Json
from k8sdds.cli.terminal import console, format_duration, print_step, print_text


def list_(
    networks: Annotated[
        bool, typer.Option("--networks", help="List the networks instead of the experiments.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the installed experiments, or the networks."""
    rows = _networks() if networks else _experiments()
    if as_json:
        print_text(json.dumps(rows, indent=1))
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    columns = list(rows[0])
    for column in columns:
        table.add_column(column.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row[column]) for column in columns))
    console().print(table)
    if not networks:
        print_step("\nTry: k8sdds show NAME, k8sdds run NAME. NAME can also be the path of a YAML file.")


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) if isinstance(value, list) else str(value or "–")


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
