"""`k8sdds lab`: build, inspect and enter the networks of an experiment without measuring."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from k8sdds.cli.commands import REST_IS_A_COMMAND, Commands, option
from k8sdds.cli.options import DryRun, Experiment, PskFile, Settings
from k8sdds.cli.output import RowsOutput
from k8sdds.cli.terminal import print_line, print_step, print_text
from k8sdds.cli.testbed import read_psk
from k8sdds.system.errors import InputError, PrerequisiteError
from k8sdds.system.kernel_features import available

if TYPE_CHECKING:
    from k8sdds.model.trial import Cell
    from k8sdds.testbeds.lab.plan import Plan

app = Commands(help="Build, inspect and enter the networks of the lab without measuring.")

Name = Annotated[str, "--name NAME: Name of the lab; several labs can be up."]


@dataclass
class Selection:
    """An experiment, and the options that choose and change its networks."""

    experiment: Experiment
    network: Annotated[
        list[str] | None,
        "--network NETWORK: Only this network (repeatable). Default: all networks of the experiment.",
        "Selection",
    ] = None
    settings: Settings = None

    def cells(self) -> list[Cell]:
        """Return one cell per lab network."""
        from k8sdds.campaign import applications, experiments, preflight
        from k8sdds.campaign.expansion import expand
        from k8sdds.networks import label_without_engine, with_engines
        from k8sdds.testbeds.lab.topology import key_of

        networks = set(self.network or ())
        changes = experiments.Changes(self.network or (), self.settings or ())
        changed = applications.load_experiment(self.experiment, changes)
        expansion = expand(with_engines(changed, available))
        preflight.refuse(preflight.contradictions(expansion))
        cells = {key_of(cell): cell for cell in expansion.cells}
        return [
            cell
            for cell in cells.values()
            if not networks or {cell.network_label, label_without_engine(cell.network_label)} & networks
        ]


def _describe(plan: Plan) -> str:
    return f"{len(plan.topology.nodes)} nodes, pods {' '.join(plan.datapath.attachments)}"


@app.add("k8sdds lab plan quickstart --network flannel-vxlan")
def plan(selection: Selection) -> None:
    """Print the commands that build an experiment's networks, one shell script per network. Runs nothing."""
    from k8sdds.testbeds.lab.plan import make_plan, script

    for cell in selection.cells():
        print_text(script(make_plan(cell)))


@app.add("k8sdds lab up quickstart", "k8sdds lab up multicast-4sub --network weavenet --name mine")
def up(selection: Selection, name: Name = "lab", psk_file: PskFile = None, dry_run: DryRun = False) -> None:
    """Build an experiment's networks and keep them until `k8sdds lab down`."""
    from k8sdds.campaign.preflight import refuse
    from k8sdds.model.trial import Trial
    from k8sdds.testbeds.lab import records
    from k8sdds.testbeds.lab.plan import make_plan
    from k8sdds.testbeds.lab.testbed import Lab

    if not name.replace("-", "").replace("_", "").isalnum():
        raise InputError(f"--name {name!r}: invalid name", "use only letters, digits, - and _")
    for record in records.all_labs():
        if record.name == name and record.in_use:
            raise InputError(
                f"the lab {name!r} is already up",
                f"run: k8sdds lab down --name {name}; or choose another --name",
            )
    cells = selection.cells()
    lab = Lab(name, selection.experiment, read_psk(psk_file))
    try:
        refuse(
            lab.check([Trial(cell=c, testbed="lab", repetition=0, duration_s=1, warmup_s=0) for c in cells])
        )
        if dry_run:
            for cell in cells:
                print_text(f"would build {cell.network_label}: {_describe(make_plan(cell))}")
            return
        lab.up(cells)
        lab.detach()
    except BaseException:
        lab.close()
        raise
    for lab_network in lab.networks.values():
        print_line(f"{lab_network.name}: {_describe(lab_network.plan)}")
    first = next(iter(lab.networks.values()))
    print_step(f"\nTry: k8sdds lab exec {first.name}/sub0 -- ip addr")


@app.add("k8sdds lab ls", "k8sdds lab ls --json")
def ls(out: RowsOutput) -> None:
    """List the labs on this machine: from `lab up`, running campaigns and killed campaigns."""
    from k8sdds.testbeds.lab import records

    rows = [
        {
            "lab": record.name,
            "network": network,
            "pods": sorted(record.pods.get(network, {})),
            "experiment": record.experiment,
            "kind": record.kind,
            "created_at": record.created_at,
            "in_use": record.in_use,
        }
        for record in records.all_labs()
        for network in record.holders
    ]
    out.print(rows, lambda: _show(rows))


def _show(rows: list[dict[str, Any]]) -> None:
    if not rows:
        print_line("No lab is up. To build one: k8sdds lab up quickstart")
        return
    for row in rows:
        state = row["kind"] if row["in_use"] else "leftover (remove it: k8sdds clean)"
        details = filter(None, (state, row["experiment"], row["created_at"]))
        print_line(f"{row['lab']}: {row['network']}  {', '.join(details)}")


def _complete_targets(incomplete: str) -> list[str]:
    """Complete NETWORK/POD of the labs that are up."""
    from k8sdds.testbeds.lab import records

    targets = {
        f"{network}/{pod}"
        for record in records.all_labs()
        for network in record.holders
        for pod in record.pods.get(network, {})
    }
    return sorted(target for target in targets if target.startswith(incomplete))


@app.add(
    "k8sdds lab exec flannel-vxlan/pub0 -- ip addr",
    "k8sdds lab exec --name mine weavenet/node0 -- tcpdump -i any -c 10",
    context_settings=REST_IS_A_COMMAND,
)
def exec_(
    target: Annotated[
        str,
        option(
            "TARGET: NETWORK/POD or NETWORK/NODE, such as flannel-vxlan/node0.",
            autocompletion=_complete_targets,
        ),
    ],
    command: Annotated[list[str], "COMMAND: The command, after --."],
    name: Name = "lab",
) -> None:
    """Run a command in a pod or on a node of a lab that is up."""
    from k8sdds.model.trial import Cell
    from k8sdds.system.sandbox import Sandbox
    from k8sdds.testbeds.lab import records
    from k8sdds.testbeds.lab.lab_network import LabNetwork
    from k8sdds.testbeds.lab.plan import make_plan

    record = records.find(name)
    if not record.in_use:
        raise InputError(f"the lab {name!r} is no longer up", "remove its leftovers: k8sdds clean")
    network, slash, member = target.partition("/")
    if not slash or network not in record.holders:
        raise InputError(
            f"{target!r} is not a pod or node of the lab {name!r}",
            f"use NETWORK/POD, with NETWORK one of: {', '.join(record.holders)}",
        )
    built = make_plan(Cell.model_validate_json(record.plans[network]))
    lab_network = LabNetwork(built, Sandbox.attach(network, record.holders[network][0]))
    lab_network.pods = record.pods.get(network, {})
    if member in built.datapath.attachments:
        argv = lab_network.enter(member)
    elif member in built.namespaces:
        argv = lab_network.sandbox.enter(member)
    else:
        members = ", ".join([*built.datapath.attachments, *(n.name for n in built.topology.nodes), "switch"])
        raise InputError(f"{network} has no pod or node {member!r}", f"use one of: {members}")
    argv += command[1:] if command[0] == "--" else command
    os.execvp(argv[0], argv)


@app.add("k8sdds lab graph quickstart --output lab.svg")
def graph(
    selection: Selection,
    output: Annotated[Path, "--output -o FILE: File to write: .svg, .png or .dot."] = Path("lab.svg"),
) -> None:
    """Draw an experiment's networks: nodes, pods, links and MTUs."""
    from k8sdds.testbeds.lab import graph as drawing
    from k8sdds.testbeds.lab.plan import make_plan

    drawing.draw([make_plan(cell) for cell in selection.cells()], output)
    print_line(f"wrote {output}")


@app.add("k8sdds lab down", "k8sdds lab down --name mine")
def down(name: Name = "lab", dry_run: DryRun = False) -> None:
    """Remove a lab that `k8sdds lab up` created."""
    from k8sdds.testbeds.lab import records

    record = records.find(name)
    if record.kind != "lab":
        raise InputError(f"{name!r} belongs to a campaign", "stop the campaign, or run: k8sdds clean")
    if dry_run:
        print_text(f"would remove {name}: {', '.join(record.holders)}")
        return
    remaining = records.remove(record)
    if remaining:
        raise PrerequisiteError(
            f"cannot remove: {', '.join(remaining)}", "stop their processes, then try again"
        )
    print_line(f"{name}: removed")
