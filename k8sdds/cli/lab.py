"""`lab`: the networks of an experiment to look at and to work in, without measuring."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from k8sdds.cli.options import Experiment, Json, Networks, PskFile, Settings
from k8sdds.cli.terminal import console, say
from k8sdds.cli.testbed import psk_of
from k8sdds.system.errors import InputError

app = typer.Typer(help="Build, look at and enter the lab's networks without measuring.", no_args_is_help=True)

Name = Annotated[str, typer.Option("--name", help="Name of the lab, to have several.")]


def _cells(
    experiment: str, networks: list[str] | None, settings: list[str] | None, baseline: bool
) -> list[Any]:
    """One cell for each bench of the experiment; the baseline only where it is asked for."""
    from k8sdds.campaign import experiments, preflight
    from k8sdds.model.trial import expand
    from k8sdds.networks import bare_label, resolved
    from k8sdds.system.kernel_features import can
    from k8sdds.testbeds.lab.topology import LabNetworkKey

    changed = experiments.changed(experiments.load(experiment), networks or (), settings or ())
    expansion = expand(resolved(changed, can))
    preflight.refuse(preflight.contradictions(expansion))
    cells = {LabNetworkKey.of(cell): cell for cell in expansion.cells}
    return [
        cell
        for cell in cells.values()
        if baseline or not networks or {cell.network_label, bare_label(cell.network_label)} & set(networks)
    ]


@app.command()
def plan(experiment: Experiment, network: Networks = None, settings: Settings = None) -> None:
    """Print the commands that build an experiment's networks, as a shell script each. Runs nothing."""
    from k8sdds.testbeds.lab.plan import plan as make
    from k8sdds.testbeds.lab.plan import script

    for cell in _cells(experiment, network, settings, baseline=False):
        say(script(make(cell)))


@app.command()
def up(
    experiment: Experiment,
    network: Networks = None,
    settings: Settings = None,
    name: Name = "lab",
    psk_file: PskFile = None,
) -> None:
    """Build an experiment's networks and leave them standing, until `lab down`."""
    from k8sdds.campaign.preflight import refuse
    from k8sdds.model.trial import Trial
    from k8sdds.testbeds.lab import records
    from k8sdds.testbeds.lab.testbed import Lab

    if not name.replace("-", "").replace("_", "").isalnum():
        raise InputError(f"--name {name!r}: letters, digits, - and _ only")
    for record in records.all_labs():
        if record.name == name and record.in_use:
            remedy = f"k8sdds lab down --name {name}; or give a --name"
            raise InputError(f"a lab named {name!r} stands already", remedy)
    cells = _cells(experiment, network, settings, baseline=False)
    lab = Lab(name, experiment, psk_of(psk_file))
    try:
        refuse(
            lab.check([Trial(cell=c, testbed="lab", repetition=0, duration_s=1, warmup_s=0) for c in cells])
        )
        lab.up(cells)
        lab.stay()
    except BaseException:
        lab.close()
        raise
    for bench in lab.benches.values():
        pods = " ".join(bench.plan.datapath.attachments)
        console().print(f"{bench.name}: {bench.plan.key.nodes} nodes, pods {pods}", highlight=False)
    first = next(iter(lab.benches.values()))
    console().print(f"\nTry: k8sdds lab exec {first.name}/sub0 -- ip addr", highlight=False)


@app.command("ls")
def list_(as_json: Json = False) -> None:
    """List the labs that stand on this machine: of `lab up`, and of running or broken campaigns."""
    from k8sdds.testbeds.lab import records

    rows = [
        {
            "lab": record.name,
            "network": bench,
            "pods": sorted(record.pods.get(bench, {})),
            "experiment": record.experiment,
            "kind": record.kind,
            "created_at": record.created_at,
            "in_use": record.in_use,
        }
        for record in records.all_labs()
        for bench in record.holders
    ]
    if as_json:
        say(json.dumps(rows, indent=1))
        return
    if not rows:
        console().print("No lab stands here. Make one: k8sdds lab up quickstart")
        return
    for row in rows:
        state = row["kind"] if row["in_use"] else "left over (k8sdds clean)"
        console().print(
            f"{row['lab']}: {row['network']}  {state}, {row['experiment']}, {row['created_at']}",
            highlight=False,
        )


def _complete_places(incomplete: str) -> list[str]:
    from k8sdds.testbeds.lab import records

    labs = records.all_labs()
    places = [f"{bench}/{pod}" for one in labs for bench in one.holders for pod in one.pods.get(bench, {})]
    return sorted({place for place in places if place.startswith(incomplete)})


@app.command("exec", context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
def exec_(
    place: Annotated[
        str,
        typer.Argument(
            help="NETWORK/POD, or NETWORK/NODE such as flannel-vxlan/node0.", autocompletion=_complete_places
        ),
    ],
    command: Annotated[list[str], typer.Argument(help="The command, after --.")],
    name: Name = "lab",
) -> None:
    """Run a command in a pod, or on a node, of a standing lab."""
    from k8sdds.model.trial import Cell
    from k8sdds.system.sandbox import Sandbox
    from k8sdds.testbeds.lab import records
    from k8sdds.testbeds.lab.lab_network import LabNetwork
    from k8sdds.testbeds.lab.plan import plan as make

    record = records.find(name)
    if not record.in_use:
        raise InputError(
            f"the lab {name!r} does not stand any more", "k8sdds clean removes what is left of it"
        )
    network, slash, inside = place.partition("/")
    if not slash or network not in record.holders:
        raise InputError(
            f"{place!r} names no place", f"NETWORK/POD with NETWORK one of {', '.join(record.holders)}"
        )
    built = make(Cell.model_validate_json(record.plans[network]))
    bench = LabNetwork(built, Sandbox.attach(network, record.holders[network][0]))
    bench.pods = record.pods.get(network, {})
    if inside in built.datapath.attachments:
        words = bench.enter(inside)
    elif inside in built.namespaces:
        words = bench.sandbox.enter(inside)
    else:
        places = ", ".join([*built.datapath.attachments, *(n.name for n in built.topology.nodes), "switch"])
        raise InputError(f"there is no {inside!r} on {network}", f"there is: {places}")
    words += command[1:] if command[0] == "--" else command
    os.execvp(words[0], words)


@app.command()
def graph(
    experiment: Experiment,
    output: Annotated[Path, typer.Option("--output", "-o", help="A .svg, .png or .dot file.")] = Path(
        "lab.svg"
    ),
    network: Networks = None,
    settings: Settings = None,
) -> None:
    """Draw an experiment's networks: nodes, pods, links and MTUs."""
    from k8sdds.testbeds.lab import graph as drawing
    from k8sdds.testbeds.lab.plan import plan as make

    cells = _cells(experiment, network, settings, baseline=False)
    drawing.draw([make(cell) for cell in cells], output)
    console().print(f"wrote {output}", highlight=False)


@app.command()
def down(name: Name = "lab") -> None:
    """Remove a lab that `lab up` made."""
    from k8sdds.system.errors import PrerequisiteError
    from k8sdds.testbeds.lab import records

    record = records.find(name)
    if record.kind != "lab":
        raise InputError(f"{name!r} is a campaign's", "end the campaign, or: k8sdds clean")
    left = records.remove(record)
    if left:
        raise PrerequisiteError(f"could not be removed: {', '.join(left)}")
    console().print(f"{name}: removed", highlight=False)
