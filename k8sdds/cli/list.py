"""`k8sdds list`: list the experiments, the networks, the studies or the applications."""

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
    applications: Annotated[
        bool, typer.Option("--applications", help="List the example applications.")
    ] = False,
    as_json: Json = False,
    form: RowsFormat = "table",
) -> None:
    """List the installed experiments, the networks, the studies or the applications."""
    form = choose(form, as_json)
    if sum((networks, studies, applications)) > 1:
        raise InputError(
            "--networks, --studies and --applications exclude each other", "leave out all but one of them"
        )
    kinds = ((networks, _networks), (studies, _studies), (applications, _applications), (True, _experiments))
    rows = next(function for requested, function in kinds if requested)()
    print_result(form, rows, lambda: print_table(rows))
    if form == TABLE and not networks:
        commands = "k8sdds reproduce NAME" if studies else "k8sdds show NAME, k8sdds run NAME"
        commands = "k8sdds run --application NAME" if applications else commands
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


def _applications() -> list[dict[str, Any]]:
    from k8sdds.campaign import applications

    return [
        {
            "name": name,
            "flows": [f"{flow.name}: {flow.describe()}" for flow in loaded.flows],
            "requirements": sum(1 for _ in loaded.requirements),
            "title": loaded.title,
        }
        for name in applications.names()
        for loaded in [applications.load(name)]
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
