"""`deploy`, `status`, `kubeconfig`, `logs`, `destroy`: a profile onto machines, and back."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from k8sdds.cli.options import Json
from k8sdds.cli.terminal import console, say
from k8sdds.system.errors import InputError, PrerequisiteError
from k8sdds.testbeds import selection

if TYPE_CHECKING:
    from k8sdds.deploy.actions import Action
    from k8sdds.model.profile import Profile


def complete_profiles(incomplete: str) -> list[str]:
    """Names of installed profiles that begin so, for the shell's completion."""
    from k8sdds.deploy import profiles

    return [name for name in profiles.names() if name.startswith(incomplete)]


ProfileName = Annotated[
    str, typer.Argument(help="Name of a profile, or a YAML file.", autocompletion=complete_profiles)
]
Limit = Annotated[
    list[str] | None,
    typer.Option("--limit", metavar="NODE", help="Only this node (repeatable); other workers may be down."),
]
AcceptKeys = Annotated[
    bool, typer.Option("--accept-new-host-keys", help="Trust and remember host keys that are not known yet.")
]
Concurrency = Annotated[int, typer.Option("--concurrency", min=1, max=200, help="Machines at a time.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; needed where there is no terminal.")]


def deploy(
    profile: ProfileName,
    show_plan: Annotated[
        bool, typer.Option("--plan", help="Only show what would be done; changes nothing.")
    ] = False,
    yes: Yes = False,
    limit: Limit = None,
    allow_reboot: Annotated[
        bool,
        typer.Option("--allow-reboot", help="Change a Raspberry Pi's boot line where needed, and reboot."),
    ] = False,
    accept_new_host_keys: AcceptKeys = False,
    concurrency: Concurrency = 20,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --plan: the plan as JSON, scripts and all.")
    ] = False,
) -> None:
    """Turn the machines of a profile into a cluster that is ready to measure; again: finish or update it.

    `one-machine` makes its three nodes on this machine itself, out of namespaces (root only).
    """
    from k8sdds.cli.deploy_progress import Progress
    from k8sdds.deploy import deploy as flow
    from k8sdds.deploy import profiles, record
    from k8sdds.system.ssh import Connections

    wanted = _load(profile, limit)
    if as_json and not show_plan:
        raise InputError("--json goes with --plan", f"k8sdds deploy {profile} --plan --json")
    if show_plan and not flow.machines_stand(wanted):
        _would_make(wanted, as_json)
        return
    with record.locked(wanted.name):
        asked = yes
        if not flow.machines_stand(wanted):
            _confirm(f"Make {len(wanted.nodes)} local nodes and a cluster on them?", yes)
            asked = True
        software = flow.make_machines(wanted, _note)
        targets = profiles.targets(wanted)
        with Connections(targets, accept_new_host_keys, concurrency) as connections:
            part, look = flow.within(wanted, flow.look(wanted, connections), limit or ())
            rebooting = flow.boot_lines(part, look, limit or ()) if allow_reboot and not show_plan else []
            if rebooting:
                names = ", ".join(rebooting)
                _confirm(f"Turn the memory cgroup on by the boot line of {names}, and reboot?", yes)
                flow.reboot(rebooting, look, connections, _note)
                part, look = flow.within(wanted, flow.look(wanted, connections), limit or ())
            look.refuse(wanted)
            state = flow.wanted(part, look.facts, software, _note)
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
                _confirm("Do this?", yes)
            _notes(look.notes)
            with Progress(actions) as progress:
                flow.carry_out(wanted, state, actions, connections, progress)
    selection.write(selection.SelectedTestbed(selection.CLUSTER, wanted.name))
    console().print(
        f"The cluster {wanted.name} is ready: {len(part.nodes)} nodes, {wanted.network.name}.\n"
        f"It is the current testbed now (k8sdds testbed). Try: k8sdds run quickstart\n"
        f"Or: kubectl --kubeconfig {record.folder(wanted.name) / 'kubeconfig'} get nodes",
        highlight=False,
        soft_wrap=True,
    )


def status(
    profile: ProfileName,
    limit: Limit = None,
    accept_new_host_keys: AcceptKeys = False,
    concurrency: Concurrency = 20,
    as_json: Json = False,
) -> None:
    """MachineSurvey at the machines of a profile over SSH: what they are, and what keeps it from fitting them.

    Changes nothing on them. Exit code 3 where a machine cannot be reached or does not fit.
    """
    from k8sdds.deploy import deploy as flow
    from k8sdds.deploy import profiles
    from k8sdds.system.ssh import Connections

    wanted = _load(profile, limit)
    profiles.password(wanted)
    targets = [t for t in profiles.targets(wanted) if not limit or t.name in limit]
    with Connections(targets, accept_new_host_keys, concurrency) as connections:
        look = flow.look(wanted, connections)
    if as_json:
        say(
            json.dumps(
                {
                    "profile": wanted.name,
                    "machines": {name: asdict(found) for name, found in look.facts.items()},
                    "unreached": {name: error.message for name, error in look.failures.items()},
                    "problems": [asdict(problem) for problem in look.problems],
                    "notes": look.notes,
                },
                indent=1,
            )
        )
    else:
        from k8sdds.cli.deploy_progress import machines_table

        console().print(machines_table(wanted, [t.name for t in targets], look.facts))
        for line in look.notes:
            console().print(line, highlight=False, markup=False, soft_wrap=True)
    if look.failures or look.problems:
        lines = [str(error) for error in look.failures.values()] + [str(one) for one in look.problems]
        raise PrerequisiteError(
            "\n".join([f"the profile {wanted.name} does not fit its machines as they are:", *lines])
        )
    if not as_json:
        console().print(f"The profile {wanted.name} fits its {len(look.facts)} machines.", highlight=False)


def kubeconfig(profile: ProfileName, path: Annotated[
    bool, typer.Option("--path", help="Print the path of the file instead of its content.")
] = False) -> None:  # fmt: skip
    """Print the admin kubeconfig of a deployed cluster; where that takes ssh, also how one gets there."""
    from k8sdds.deploy import api_access

    found, way = api_access.lasting(_load(profile).name)
    say(str(found) if path else found.read_text().rstrip("\n"))
    if way:
        _note(way)


def logs(
    profile: ProfileName,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file to write; default: NAME-logs-TIME.tar.gz here."),
    ] = None,
    accept_new_host_keys: AcceptKeys = False,
    concurrency: Concurrency = 20,
) -> None:
    """Collect what one needs to find out why a cluster does not work: from here and from all its machines.

    No keys, tokens or Secrets are in it.
    """
    from k8sdds.deploy import logs as collect
    from k8sdds.deploy import profiles
    from k8sdds.system.ssh import Connections

    wanted = _load(profile)
    with Connections(profiles.targets(wanted), accept_new_host_keys, concurrency) as connections:
        written, unreached = collect.collect(wanted, connections, output)
    for error in unreached:
        console(stderr=True).print(f"left out: {error}", highlight=False, markup=False, soft_wrap=True)
    console().print(f"wrote {written}", highlight=False, soft_wrap=True)


def destroy(
    profile: ProfileName,
    yes: Yes = False,
    purge: Annotated[
        bool,
        typer.Option("--purge", help="Packages that deploy has installed as well, and the logs kept here."),
    ] = False,
    accept_new_host_keys: AcceptKeys = False,
    concurrency: Concurrency = 20,
) -> None:
    """Take the cluster away, and leave the machines as they were before; local nodes go with it."""
    from k8sdds.cli.deploy_progress import Progress
    from k8sdds.deploy import deploy as flow
    from k8sdds.deploy import destroy as destroying
    from k8sdds.deploy import profiles, record
    from k8sdds.system.ssh import Connections

    wanted = _load(profile)
    if wanted.provider == "local":
        names = destroying.local_names(wanted)
        if not names and record.read(wanted.name) is None:
            console().print("Nothing to destroy.", highlight=False)
            return
        _confirm(f"Remove the local nodes {', '.join(names)} with all that is on them?", yes)
        with record.locked(wanted.name):
            destroying.local_nodes(wanted)
        record.forget(wanted.name)
        selection.forget(wanted.name)
        console().print(f"removed {', '.join(names)}" if names else "removed", highlight=False)
        return
    with (
        record.locked(wanted.name),
        Connections(profiles.targets(wanted), accept_new_host_keys, concurrency) as connections,
    ):
        look = flow.look(wanted, connections)
        actions = destroying.plan(wanted, look, purge)
        if actions:
            names = ", ".join(dict.fromkeys(action.node for action in actions))
            _confirm(f"Take the cluster {wanted.name} away from {names}, with all that runs on it?", yes)
            with Progress(actions) as progress:
                destroying.carry_out(wanted, look, actions, connections, progress)
    record.forget(wanted.name, keep_logs=not purge)
    selection.forget(wanted.name)
    console().print("removed" if actions else "Nothing to destroy.", highlight=False)


def _load(profile: str, limit: list[str] | None = None) -> Profile:
    from k8sdds.deploy import profiles

    wanted = profiles.load(profile)
    known = [node.name for node in wanted.nodes]
    for name in limit or ():
        if name not in known:
            raise InputError(f"--limit {name}: not in this profile", f"it has: {', '.join(known)}")
    return wanted


def _confirm(question: str, yes: bool) -> None:
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InputError("there is no terminal to ask on whether to go on", "--yes, if you are sure")
    if not typer.confirm(question, default=False):
        raise typer.Abort


def _note(text: str) -> None:
    console(stderr=True).print(text, highlight=False, markup=False, soft_wrap=True)


def _notes(lines: Sequence[str]) -> None:
    for line in lines:
        _note(line)


def _would_make(wanted: Profile, as_json: bool) -> None:
    names = [node.name for node in wanted.nodes]
    if as_json:
        say(json.dumps({"machines": names, "actions": None}, indent=1))
        return
    console().print(
        f"would make the local nodes {', '.join(names)} and a cluster of Kubernetes"
        f" {wanted.kubernetes.version} with {wanted.network.name} on them;"
        " what is done on each is planned when they stand",
        highlight=False,
        soft_wrap=True,
    )


def _show(actions: list[Action], notes: Any, as_json: bool) -> None:
    from k8sdds.deploy.plan import shown

    if as_json:
        say(json.dumps({"actions": [shown(action) for action in actions], "notes": list(notes)}, indent=1))
        return
    for note in notes:
        console().print(note, highlight=False, markup=False, soft_wrap=True)
    for action in actions:
        line = f"{action.node}: {action.phase}: {action.title}"
        console().print(line, highlight=False, markup=False, soft_wrap=True)
    if not actions:
        console().print("no changes", highlight=False)
