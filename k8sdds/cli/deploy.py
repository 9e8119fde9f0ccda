"""`k8sdds deploy`: build a cluster on the machines of a profile."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from k8sdds.cli.options import AcceptKeys, Concurrency, Limit, ProfileName, Yes, load_profile
from k8sdds.cli.terminal import confirm, console, print_note, print_text
from k8sdds.system.errors import InputError
from k8sdds.testbeds import selection

if TYPE_CHECKING:
    from k8sdds.deploy.actions import Action
    from k8sdds.model.profile import Profile


def deploy(
    profile: ProfileName,
    show_plan: Annotated[
        bool, typer.Option("--plan", help="Show the planned changes without making them.")
    ] = False,
    yes: Yes = False,
    limit: Limit = None,
    allow_reboot: Annotated[
        bool,
        typer.Option(
            "--allow-reboot",
            help="Change the kernel command line of a Raspberry Pi if needed, and reboot it.",
        ),
    ] = False,
    accept_new_host_keys: AcceptKeys = False,
    concurrency: Concurrency = 20,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --plan: print the plan as JSON, including all scripts.")
    ] = False,
) -> None:
    """Build a cluster on the machines of a profile. Run it again to finish or update the cluster.

    The profile `one-machine` creates three local nodes from namespaces on this machine (root only).
    """
    from k8sdds.cli.deploy_progress import Progress
    from k8sdds.deploy import deploy as flow
    from k8sdds.deploy import profiles, record
    from k8sdds.system.ssh import Connections

    wanted = load_profile(profile, limit)
    if as_json and not show_plan:
        raise InputError("--json requires --plan", f"run: k8sdds deploy {profile} --plan --json")
    if show_plan and not flow.machines_stand(wanted):
        _show_local_nodes_plan(wanted, as_json)
        return
    with record.locked(wanted.name):
        asked = yes
        if not flow.machines_stand(wanted):
            confirm(f"Create {len(wanted.nodes)} local nodes and a cluster on them?", yes)
            asked = True
        software = flow.make_machines(wanted, print_note)
        targets = profiles.targets(wanted)
        with Connections(targets, accept_new_host_keys, concurrency) as connections:
            part, look = flow.within(wanted, flow.look(wanted, connections), limit or ())
            rebooting = flow.boot_lines(part, look, limit or ()) if allow_reboot and not show_plan else []
            if rebooting:
                names = ", ".join(rebooting)
                confirm(f"Enable the memory cgroup on the kernel command line of {names}, and reboot?", yes)
                flow.reboot(rebooting, look, connections, print_note)
                part, look = flow.within(wanted, flow.look(wanted, connections), limit or ())
            look.refuse(wanted)
            state = flow.wanted(part, look.facts, software, print_note)
            actions = flow.planned(state, limit or ())
            if show_plan:
                _show(actions, look.notes, as_json)
                return
            if not actions:
                if limit:
                    _notes(look.notes)
                flow.reachable(wanted, connections)
                console().print("no changes", highlight=False)
                return
            if not asked:
                _show(actions, look.notes, False)
                confirm("Apply these changes?", yes)
            _notes(look.notes)
            with Progress(actions) as progress:
                flow.carry_out(wanted, state, actions, connections, progress)
    selection.write(selection.SelectedTestbed(selection.CLUSTER, wanted.name))
    console().print(
        f"The cluster {wanted.name} is ready: {len(part.nodes)} nodes, {wanted.network.name}.\n"
        f"It is now the current testbed (k8sdds testbed). Try: k8sdds run quickstart\n"
        f"Or: kubectl --kubeconfig {record.folder(wanted.name) / 'kubeconfig'} get nodes",
        highlight=False,
        soft_wrap=True,
    )


def _notes(lines: Sequence[str]) -> None:
    for line in lines:
        print_note(line)


def _show_local_nodes_plan(profile: Profile, as_json: bool) -> None:
    """Show the plan of a local cluster whose nodes do not exist yet."""
    names = [node.name for node in profile.nodes]
    if as_json:
        print_text(json.dumps({"machines": names, "actions": None}, indent=1))
        return
    console().print(
        f"would create the local nodes {', '.join(names)} and a cluster of Kubernetes"
        f" {profile.kubernetes.version} with {profile.network.name} on them;"
        " the changes on each node are planned once the nodes exist",
        highlight=False,
        soft_wrap=True,
    )


def _show(actions: list[Action], notes: Any, as_json: bool) -> None:
    """Show the planned actions, in the order in which they run."""
    from k8sdds.deploy.plan import shown

    if as_json:
        print_text(
            json.dumps({"actions": [shown(action) for action in actions], "notes": list(notes)}, indent=1)
        )
        return
    for note in notes:
        console().print(note, highlight=False, markup=False, soft_wrap=True)
    for action in actions:
        line = f"{action.node}: {action.phase}: {action.title}"
        console().print(line, highlight=False, markup=False, soft_wrap=True)
    if not actions:
        console().print("no changes", highlight=False)
