"""`k8sdds status`: inspect the machines of a profile."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from k8sdds.cli.options import (
    AcceptKeys,
    AllowReboot,
    Concurrency,
    DryRun,
    Json,
    Limit,
    ProfileName,
    Yes,
    load_profile,
)
from k8sdds.cli.terminal import agrees, console, print_note, print_text
from k8sdds.system.errors import InputError, PrerequisiteError

if TYPE_CHECKING:
    from k8sdds.deploy.facts import Facts
    from k8sdds.model.profile import Profile
    from k8sdds.system.ssh import Connections

COLUMNS = (
    "node", "arch", "system", "kernel", "cpus", "memory", "cgroup", "containerd", "kubelet", "cluster",
)  # fmt: skip


def status(
    profile: ProfileName,
    limit: Limit = None,
    fix: Annotated[
        bool,
        typer.Option(
            "--fix",
            help="Show and confirm fixes of the machines, and apply them: swap, memory cgroup, kernel modules.",
        ),
    ] = False,
    allow_reboot: AllowReboot = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    accept_new_host_keys: AcceptKeys = False,
    concurrency: Concurrency = 20,
    as_json: Json = False,
) -> None:
    """Check over SSH whether the machines of a profile fit it. Makes no changes without --fix.

    Exits with code 3 if a machine cannot be reached or does not fit the profile.
    """
    from k8sdds.deploy import deploy as flow
    from k8sdds.deploy import profiles
    from k8sdds.system.ssh import Connections

    if not fix and (allow_reboot or dry_run or yes):
        raise InputError(
            "--allow-reboot, --dry-run and --yes require --fix", f"run: k8sdds status {profile} --fix"
        )
    if fix and as_json:
        raise InputError("--fix shows its fixes as text", "leave out --json")
    loaded = load_profile(profile, limit)
    profiles.password(loaded)
    profiles.registry_login(loaded)
    targets = [target for target in profiles.targets(loaded) if not limit or target.name in limit]
    with Connections(targets, accept_new_host_keys, concurrency) as connections:
        survey = flow.survey(loaded, connections)
        if fix and _fix(loaded, survey.facts, connections, allow_reboot, dry_run, yes):
            survey = flow.survey(loaded, connections)
    if as_json:
        print_text(
            json.dumps(
                {
                    "profile": loaded.name,
                    "machines": {name: facts.to_json() for name, facts in survey.facts.items()},
                    "unreached": {name: error.message for name, error in survey.failures.items()},
                    "problems": [asdict(problem) for problem in survey.problems],
                    "notes": survey.notes,
                },
                indent=1,
            )
        )
    else:
        console().print(_machines_table(loaded, [target.name for target in targets], survey.facts))
        for note in survey.notes:
            console().print(note, highlight=False, markup=False, soft_wrap=True)
    if survey.failures or survey.problems:
        lines = [str(problem) for problem in (*survey.failures.values(), *survey.problems)]
        raise PrerequisiteError("\n".join([f"the machines do not fit the profile {loaded.name}:", *lines]))
    if not as_json:
        console().print(f"The profile {loaded.name} fits its {len(survey.facts)} machines.", highlight=False)


def _fix(
    profile: Profile,
    facts: Mapping[str, Facts],
    connections: Connections,
    allow_reboot: bool,
    dry_run: bool,
    yes: bool,
) -> bool:
    """Show the fixes of all machines, apply those that the user confirms, and return whether any was applied."""
    from k8sdds.cli.deploy_progress import Progress
    from k8sdds.deploy import fixes

    planned = fixes.plan(profile, facts)
    if not planned:
        print_note("--fix: there is nothing to fix on the machines that can be reached")
    agreed = []
    for fix in planned:
        print_note("\n".join([fix.title, *(f"  {line}" for line in fix.preview)]))
        if dry_run:
            continue
        if fix.reboots and not allow_reboot:
            print_note("  skipped: it reboots the machine; add --allow-reboot")
        elif agrees("Apply this fix?", yes):
            agreed.append(fix)
    if agreed:
        with Progress([fix.action for fix in agreed]) as observer:
            fixes.apply(profile, agreed, connections, observer)
    return bool(agreed)


def _machines_table(profile: Profile, names: Sequence[str], facts: Mapping[str, Facts]) -> Any:
    """Return a table with one row per machine of a profile."""
    from rich.table import Table

    from k8sdds.deploy.facts.cluster_state import cluster_state

    cluster = cluster_state(facts.get(profile.control_plane.name))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in COLUMNS:
        table.add_column(column, overflow="fold")
    for name in names:
        machine = facts.get(name)
        if machine is None:
            table.add_row(name, "unreachable")
            continue
        values = machine.values
        membership = values.get("marker") or ("foreign" if machine.all("leftover") else "none")
        if values.get("marker") == profile.name:
            membership = {True: "ready", False: "not ready", None: "not joined"}[cluster.ready.get(name)]
        table.add_row(
            name,
            machine.architecture,
            values.get("os.PRETTY_NAME", "?"),
            values.get("kernel", "?"),
            values.get("cpus", "?"),
            f"{machine.number('memory_kib') / 1024**2:.1f} GiB",
            f"v{values.get('cgroup', '?')}",
            values.get("containerd") or "–",
            machine.pairs("program").get("kubelet") or "–",
            membership,
        )
    return table
