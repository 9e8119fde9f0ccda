"""`k8sdds deploy`: build a cluster on the machines of a profile."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from k8sdds.cli.help import OUTPUT
from k8sdds.cli.options import (
    AcceptKeys,
    AllowReboot,
    Concurrency,
    DryRun,
    Force,
    Limit,
    ProfileName,
    Yes,
    load_profile,
)
from k8sdds.cli.terminal import confirm, console, print_note, print_step, print_text
from k8sdds.system.errors import InputError
from k8sdds.testbeds import selection

if TYPE_CHECKING:
    from k8sdds.cli.deploy_progress import Progress
    from k8sdds.deploy.actions import Action
    from k8sdds.model.profile import Profile


def deploy(
    profile: ProfileName,
    yes: Yes = False,
    force: Force = False,
    limit: Limit = None,
    allow_reboot: AllowReboot = False,
    accept_new_host_keys: AcceptKeys = False,
    concurrency: Concurrency = 20,
    dry_run: DryRun = False,
    show_plan: Annotated[bool, typer.Option("--plan", hidden=True, help="The same as --dry-run.")] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="With --dry-run: print the plan as JSON, including all scripts.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
) -> None:
    """Build a cluster on the machines of a profile. Run it again to finish or update the cluster.

    The profile `one-machine` creates three local nodes from namespaces on this machine (root only).
    """
    from k8sdds.deploy import deploy as flow
    from k8sdds.deploy import record

    loaded = load_profile(profile, limit)
    dry_run = dry_run or show_plan
    if as_json and not dry_run:
        raise InputError("--json requires --dry-run", f"run: k8sdds deploy {profile} --dry-run --json")
    if dry_run and not flow.machines_exist(loaded):
        _show_local_nodes_plan(loaded, as_json)
        return
    options = flow.Options(limit or (), allow_reboot, dry_run, accept_new_host_keys, concurrency, force)
    deployed = flow.deploy(loaded, options, _Terminal(yes))
    if dry_run:
        if deployed.missing:
            _show_software_plan(deployed.missing, deployed.notes, as_json)
        else:
            _show(deployed.actions, deployed.notes, as_json)
        return
    if not deployed.actions:
        if limit:
            _notes(deployed.notes)
        console().print("no changes")
        return
    selection.write(selection.SelectedTestbed(selection.CLUSTER, loaded.name))
    console().print(
        f"The cluster {loaded.name} is ready: {deployed.node_count} nodes, {loaded.network.name},"
        f" Kubernetes {loaded.kubernetes.version} ({deployed.software}).",
        soft_wrap=True,
    )
    print_step(
        f"It is now the current testbed (k8sdds testbed). Try: k8sdds run quickstart\n"
        f"Or: kubectl --kubeconfig {record.folder(loaded.name) / 'kubeconfig'} get nodes"
    )


class _Terminal:
    """Report a deploy on the terminal, and ask for confirmation unless --yes is given."""

    def __init__(self, yes: bool) -> None:
        self._yes = yes

    def step(self, title: str) -> None:
        if console(stderr=True).is_terminal:
            print_note(f"{title} …")

    def note(self, text: str) -> None:
        print_note(text)

    def confirm(self, question: str) -> None:
        confirm(question, self._yes)

    def confirm_plan(self, actions: Sequence[Action], notes: Sequence[str]) -> None:
        if not self._yes:
            _show(actions, notes, as_json=False)
            confirm("Apply these changes?", yes=False)

    def progress(self, actions: Sequence[Action]) -> Progress:
        from k8sdds.cli.deploy_progress import Progress

        return Progress(actions)


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
        soft_wrap=True,
    )


def _show_software_plan(missing: str, notes: Sequence[str], as_json: bool) -> None:
    """Show the plan of a deploy whose software is not in the cache."""
    if as_json:
        print_text(json.dumps({"missing": missing, "actions": None, "notes": list(notes)}, indent=1))
        return
    for note in notes:
        console().print(note, soft_wrap=True)
    console().print(
        f"would first add missing software to the cache, starting with {missing}: downloads take minutes, builds"
        " without internet access 20 minutes; would then plan the changes on each machine, and ask before applying"
        " them",
        soft_wrap=True,
    )


def _show(actions: Sequence[Action], notes: Sequence[str], as_json: bool) -> None:
    """Show the planned actions, in the order in which they run."""
    from k8sdds.deploy.plan import to_json

    if as_json:
        print_text(
            json.dumps({"actions": [to_json(action) for action in actions], "notes": list(notes)}, indent=1)
        )
        return
    for note in notes:
        console().print(note, soft_wrap=True)
    for action in actions:
        line = f"{action.node}: {action.phase}: {action.title}"
        console().print(line, soft_wrap=True)
    if not actions:
        console().print("no changes")
