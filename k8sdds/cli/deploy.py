"""`k8sdds deploy`: build a cluster on the machines of a profile."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from k8sdds.cli.commands import Commands
from k8sdds.cli.options import AllowReboot, DryRun, Force, Limit, ProfileName, SshOptions, Yes, load_profile
from k8sdds.cli.progress import ActionProgress, Steps
from k8sdds.cli.terminal import confirm, print_line, print_note, print_step, print_text
from k8sdds.system.errors import InputError
from k8sdds.testbeds import selection

if TYPE_CHECKING:
    from k8sdds.deploy.actions import Action
    from k8sdds.model.profile import Profile

app = Commands()


@app.add(
    "k8sdds deploy one-machine",
    "k8sdds deploy ./my-lab.yaml --dry-run",
    "k8sdds deploy ./my-lab.yaml --limit worker2 --yes",
)
def deploy(
    profile: ProfileName,
    yes: Yes = False,
    force: Force = False,
    limit: Limit = None,
    allow_reboot: AllowReboot = False,
    *,
    ssh: SshOptions,
    dry_run: DryRun = False,
    as_json: Annotated[
        bool, "--json: With --dry-run: print the plan as JSON, including all scripts.", "Output"
    ] = False,
) -> None:
    """Build a cluster on the machines of a profile. Run it again to finish or update the cluster.

    The profile `one-machine` creates three local nodes from namespaces on this machine (root only).
    """
    from k8sdds.deploy import deploy as flow

    loaded = load_profile(profile, limit)
    if as_json and not dry_run:
        raise InputError("--json requires --dry-run", f"run: k8sdds deploy {profile} --dry-run --json")
    if dry_run and not flow.machines_exist(loaded):
        _show_incomplete(loaded, flow.missing_software(loaded, print_note), (), as_json, create=True)
        return
    with _Terminal(yes) as terminal:
        deployed = flow.deploy(
            loaded, terminal, limit=limit or (), allow_reboot=allow_reboot, dry_run=dry_run, force=force,
            connect=ssh.connect,
        )  # fmt: skip
    if dry_run:
        if deployed.missing:
            _show_incomplete(loaded, deployed.missing, deployed.notes, as_json)
        else:
            _show(deployed.actions, deployed.notes, as_json)
        return
    if not deployed.actions:
        if limit and deployed.notes:
            print_note("\n".join(deployed.notes))
        print_line("no changes")
        return
    print_line(
        f"The cluster {loaded.name} is ready: {deployed.node_count} nodes, {loaded.network.name},"
        f" Kubernetes {loaded.kubernetes.version} ({deployed.software})."
    )
    _show_next_steps(loaded.name)


def _show_next_steps(name: str) -> None:
    from k8sdds.deploy import record

    is_current = selection.read().name == name
    print_step(
        f"Measure on it: k8sdds run quickstart{'' if is_current else f' --testbed {name}'}\n"
        + ("" if is_current else f"Make it the current testbed: k8sdds testbed {name}\n")
        + f"Look at it: kubectl --kubeconfig {record.folder(name) / 'kubeconfig'} get nodes"
    )


class _Terminal(Steps):
    """Report a deploy on the terminal, and ask for confirmation unless --yes is given."""

    note = Steps.__call__

    def __init__(self, yes: bool) -> None:
        super().__init__()
        self._yes = yes

    def confirm(self, question: str) -> None:
        self.pause()
        confirm(question, self._yes)

    def confirm_plan(self, actions: Sequence[Action], notes: Sequence[str]) -> None:
        self.pause()
        if not self._yes:
            _show(actions, notes, as_json=False)
            confirm("Apply these changes?", yes=False)

    def progress(self, actions: Sequence[Action]) -> ActionProgress:
        self.pause()
        return ActionProgress(actions)


def _show_incomplete(
    profile: Profile, missing: Mapping[str, int], notes: Sequence[str], as_json: bool, create: bool = False
) -> None:
    """Show the plan of a deploy before the changes of machines are known: their software or they are missing."""
    from k8sdds.bundle import cache

    names = [node.name for node in profile.nodes]
    if as_json:
        plan = {"missing": list(missing), "actions": None, "notes": list(notes)}
        print_text(json.dumps({"machines": names, **plan} if create else plan, indent=1))
        return
    nodes = (
        f"would create the local nodes {', '.join(names)} and a cluster of Kubernetes"
        f" {profile.kubernetes.version} with {profile.network.name} on them"
    )
    then = f"the changes of the machines are planned once they {'and the software ' if missing else ''}exist"
    for line in (*notes, *cache.describe(missing), *([nodes] if create else []), then):
        print_line(line)


def _show(actions: Sequence[Action], notes: Sequence[str], as_json: bool) -> None:
    """Show the planned actions, in the order in which they run."""
    from k8sdds.deploy.plan import to_json

    if as_json:
        print_text(
            json.dumps({"actions": [to_json(action) for action in actions], "notes": list(notes)}, indent=1)
        )
        return
    for note in notes:
        print_line(note)
    for action in actions:
        print_line(f"{action.node}: {action.phase}: {action.title}")
    if not actions:
        print_line("no changes")
