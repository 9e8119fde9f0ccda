"""`k8sdds show`: show an experiment or application with its cells resolved, or a link."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from k8sdds.cli.commands import Commands
from k8sdds.cli.options import Changes, Experiment, Paper, any_given
from k8sdds.cli.output import RowsOutput, print_table
from k8sdds.cli.terminal import console, print_step
from k8sdds.system.errors import InputError, K8sddsError
from k8sdds.system.kernel_features import available
from k8sdds.system.numbers import format_duration

if TYPE_CHECKING:
    from k8sdds.campaign.expansion import Expansion
    from k8sdds.links import NamedLink
    from k8sdds.model.application import Application
    from k8sdds.model.trial import Cell

app = Commands()

_COLUMNS = (
    "network", "test", "payload_bytes", "publishers", "subscribers", "transport", "reliability", "layout", "nodes",
)  # fmt: skip
"""Settings with a column of their own."""


@app.add("k8sdds show quickstart", "k8sdds show multicast-12sub --commands --set payload_bytes=[64,1024]")
def show(
    experiment: Experiment,
    *,
    changes: Changes,
    paper: Paper = False,
    commands: Annotated[bool, "--commands: Also show the command line of each pod."] = False,
    out: RowsOutput,
) -> None:
    """Show the cells of an experiment or application, its estimated duration and, on request, the command lines.

    Of an application, also show what it sends and requires. Of a link, show what it does to packets, and where its
    values come from.
    """
    from k8sdds import links
    from k8sdds.campaign import applications, preflight
    from k8sdds.campaign.expansion import expand
    from k8sdds.networks import with_engines

    if links.is_link(experiment):
        if any_given(changes, paper or None, commands or None):
            raise InputError(
                f"{experiment} is a link", f"measure with it: k8sdds run quickstart --link {experiment}"
            )
        _show_link(experiment, links.load(experiment), out)
        return
    changed = applications.load_experiment(experiment, replace(changes.arguments, paper=paper))
    expansion = expand(with_engines(changed, available))
    cells = [
        {"cell_id": cell.cell_id, **cell.model_dump(mode="json"), "commands": _commands(expansion, cell)}
        for cell in expansion.cells
    ]
    problems = [str(problem) for problem in preflight.contradictions(expansion)]
    estimate_s = preflight.estimate_s(expansion)
    data = {
        "experiment": expansion.experiment.model_dump(mode="json"), "estimate_s": estimate_s, "cells": cells,
        "problems": problems,
    }  # fmt: skip
    out.print(data, lambda: _print(expansion, cells, problems, estimate_s, commands), rows=cells)


def _show_link(name: str, link: NamedLink, out: RowsOutput) -> None:
    from rich.text import Text

    def print_link() -> None:
        console().print(Text.assemble((link.name, "bold"), f": {link.title}"))
        if link.description:
            console().print(link.description)
        found = link.link
        for way, direction in found.directions.items():
            console().print(f"{way}: {direction.describe() or 'nothing'}")
        for outage in found.outages:
            console().print(outage.describe())
        console().print("\nSources")
        for key, source in link.sources.items():
            console().print(f"{key}: {source}")
        long = max((math.ceil(outage.cycle_s) for outage in found.outages), default=0)
        command = f"k8sdds run quickstart --link {name}" + (f" --duration {long}" if long else "")
        print_step(f"\nTry: {command}, k8sdds init link my-link --like {name}")

    data = link.model_dump(mode="json")
    out.print(data, print_link, rows=[data])


def _print(
    expansion: Expansion, cells: list[dict[str, Any]], problems: list[str], estimate_s: float, commands: bool
) -> None:
    from rich.text import Text

    from k8sdds.model.application import ApplicationExperiment
    from k8sdds.model.axis import payload

    out, experiment = console(), expansion.experiment
    out.print(Text.assemble((experiment.name, "bold"), f": {experiment.title}"))
    if experiment.description:
        out.print(experiment.description)
    if isinstance(experiment, ApplicationExperiment):
        _print_application(experiment.application)
    out.print(
        f"{len(cells)} cells × {experiment.repetitions} repetitions of {experiment.duration_s:g} s"
        f" (warm-up {experiment.warmup_s:g} s): about {format_duration(estimate_s)};"
        f" baseline {experiment.baseline}\n"
    )
    rows = [
        {
            "cell": cell.cell_id, "network": cell.network_label, "test": cell.test_label,
            "payload": payload(cell.payload_bytes), "pub→sub": f"{cell.publishers}→{cell.subscribers}",
            "transport": cell.transport, "reliability": cell.reliability, "layout": cell.layout,
            "nodes": str(cell.node_count), "other settings": ", ".join(cell.settings(_COLUMNS)),
        }
        for cell in expansion.cells
    ]  # fmt: skip
    if not any(row["other settings"] for row in rows):
        rows = [{name: row[name] for name in row if name != "other settings"} for row in rows]
    print_table(rows)
    if commands:
        for row in cells:
            out.print(Text(f"\n{row['cell_id']}", style="bold"))
            for participant, line in row["commands"].items():
                out.print(f"  {participant}: {line}", soft_wrap=True)
    else:
        print_step("\nTo see the command line of each pod, add --commands.")
    for problem in problems:
        out.print(problem, style="red")
    if problems:
        raise InputError("this experiment cannot run", "fix the problems above")


def _print_application(application: Application) -> None:
    """Print what each flow sends, and what is required of it."""
    required = defaultdict(list)
    for requirement in application.requirements:
        required[requirement.where].append(requirement.text)
    sent = {flow.name: f"{flow.describe()}; " for flow in application.flows}
    for where, texts in required.items():
        console().print(f"{where}: {sent.get(where, '')}requires {', '.join(texts)}")


def _commands(expansion: Expansion, cell: Cell) -> dict[str, str]:
    """Map each participant to its command line, with the addresses that it has in the lab."""
    import shlex

    from k8sdds import middleware
    from k8sdds.middleware import Surroundings
    from k8sdds.model.measurement import ParticipantPaths
    from k8sdds.model.trial import Endpoint, Trial
    from k8sdds.security import levels
    from k8sdds.testbeds.lab.plan import make_plan

    experiment = expansion.experiment
    trial = Trial(
        cell=cell, testbed="lab", repetition=0, duration_s=experiment.duration_s, warmup_s=experiment.warmup_s
    )
    try:
        protection = levels.resolve(cell.security, cell.security_options)
        path = make_plan(cell).datapath
        endpoints = {
            name: Endpoint(pod.address, pod.interface, None, path.mtu)
            for name, pod in path.attachments.items()
        }
        program, commands = middleware.program_of(cell), {}
        for participant in cell.participants:
            paths = ParticipantPaths("k8sdds-perftest", Path("RAW") / participant.name)
            surroundings = Surroundings(endpoints, 1, paths, protection)
            commands[participant.name] = program.command(trial, participant, surroundings).argv
        if implementation := middleware.of(cell):
            for service in cell.services:
                address = endpoints[service.name].address
                commands[service.name] = implementation.service_command(address, service.index)
        return {name: shlex.join(argv) for name, argv in commands.items()}
    except K8sddsError:
        return {}  # the list of problems explains what is wrong with the cell
