"""`k8sdds status`, `kubeconfig`, `logs` and `destroy`: inspect, use and remove a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from k8sdds.cli.commands import Commands
from k8sdds.cli.options import AllowReboot, DryRun, Force, Limit, ProfileName, SshOptions, Yes, load_profile
from k8sdds.cli.output import RowsOutput, print_table
from k8sdds.cli.progress import ActionProgress
from k8sdds.cli.terminal import agrees, confirm, console, print_line, print_note, print_text
from k8sdds.system.errors import InputError, PrerequisiteError
from k8sdds.testbeds import selection

if TYPE_CHECKING:
    from k8sdds.deploy.deploy import MachineSurvey
    from k8sdds.deploy.facts import Facts
    from k8sdds.model.profile import Profile
    from k8sdds.system.ssh import Connections

app = Commands()


@app.add("k8sdds status ./my-lab.yaml", "k8sdds status ./my-lab.yaml --json")
def status(
    profile: ProfileName,
    limit: Limit = None,
    fix: Annotated[
        bool,
        "--fix: Show and confirm fixes of the machines, and apply them: swap, memory cgroup, kernel modules.",
    ] = False,
    allow_reboot: AllowReboot = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    *,
    ssh: SshOptions,
    out: RowsOutput,
) -> None:
    """Check over SSH whether the machines of a profile fit it. Makes no changes without --fix.

    Exits with code 3 if a machine cannot be reached or does not fit the profile.
    The rows of --format csv are the machines.
    """
    from k8sdds.deploy import deploy as flow
    from k8sdds.deploy import profiles

    if not fix and (allow_reboot or dry_run or yes):
        raise InputError(
            "--allow-reboot, --dry-run and --yes require --fix", f"run: k8sdds status {profile} --fix"
        )
    if fix and not out.is_text:
        raise InputError("--fix shows its fixes as text", "leave out --json and --format")
    loaded = load_profile(profile, limit)
    profiles.password(loaded)
    profiles.registry_login(loaded)
    targets = profiles.targets(loaded, limit)
    with ssh.connect(targets) as connections:
        survey = flow.survey(loaded, connections)
        if fix and _fix(loaded, survey.facts, connections, allow_reboot, dry_run, yes):
            survey = flow.survey(loaded, connections)
    rows = _machines(loaded, [target.name for target in targets], survey.facts)
    out.print(_data(loaded, survey), lambda: _show(rows, survey.notes), rows=rows)
    if survey.failures or survey.problems:
        lines = [str(problem) for problem in (*survey.failures.values(), *survey.problems)]
        raise PrerequisiteError("\n".join([f"the machines do not fit the profile {loaded.name}:", *lines]))
    if out.is_text:
        print_line(f"The profile {loaded.name} fits its {len(survey.facts)} machines.")


def _data(profile: Profile, survey: MachineSurvey) -> dict[str, Any]:
    return {
        "profile": profile.name,
        "machines": {name: facts.to_json() for name, facts in survey.facts.items()},
        "unreached": {name: error.message for name, error in survey.failures.items()},
        "problems": [asdict(problem) for problem in survey.problems],
        "notes": survey.notes,
    }


def _fix(
    profile: Profile,
    facts: Mapping[str, Facts],
    connections: Connections,
    allow_reboot: bool,
    dry_run: bool,
    yes: bool,
) -> bool:
    """Show the fixes of all machines, apply those that the user confirms, and return whether any was applied."""
    from k8sdds.deploy import fixes

    planned = fixes.plan(profile, facts)
    if not planned:
        print_note("--fix: there is nothing to fix on the machines that can be reached")
    agreed = []
    for fix in planned:
        preview = "\n".join([fix.title, *(f"  {line}" for line in fix.preview)])
        # Printed with --quiet too: the user confirms what is shown.
        console(stderr=True).print(preview, soft_wrap=True)
        if dry_run:
            continue
        if fix.reboots and not allow_reboot:
            print_note("  skipped: it reboots the machine; add --allow-reboot")
        elif agrees("Apply this fix?", yes):
            agreed.append(fix)
    if agreed:
        with ActionProgress([fix.action for fix in agreed]) as observer:
            fixes.apply(profile, agreed, connections, observer)
    return bool(agreed)


def _show(rows: Sequence[Mapping[str, Any]], notes: Sequence[str]) -> None:
    print_table(rows)
    for note in notes:
        print_line(note)


def _machines(profile: Profile, names: Sequence[str], facts: Mapping[str, Facts]) -> list[dict[str, Any]]:
    from k8sdds.deploy.facts import cluster_state

    cluster = cluster_state(facts.get(profile.control_plane.name))
    rows = []
    for name in names:
        machine = facts.get(name)
        values = machine.values if machine else {}
        membership = values.get("marker") or ("foreign" if machine and machine.all("leftover") else "none")
        if values.get("marker") == profile.name:
            membership = {True: "ready", False: "not ready", None: "not joined"}[cluster.ready.get(name)]
        known = {
            "arch": machine.architecture, "system": values.get("os.PRETTY_NAME", "?"),
            "kernel": values.get("kernel", "?"), "cpus": values.get("cpus", "?"),
            "memory": f"{machine.number('memory_kib') / 1024**2:.1f} GiB", "cgroup": f"v{values.get('cgroup', '?')}",
            "containerd": values.get("containerd") or "",
            "kubelet": machine.pairs("program").get("kubelet") or "", "cluster": membership,
        } if machine else {}  # fmt: skip
        rows.append({"node": name, "arch": "unreachable"} | known)
    columns = dict.fromkeys(column for row in rows for column in row)
    return [{column: row.get(column, "") for column in columns} for row in rows]


@app.add("k8sdds kubeconfig one-machine --path")
def kubeconfig(
    profile: ProfileName,
    path: Annotated[bool, "--path: Print the path of the file instead of its content."] = False,
) -> None:
    """Print the admin kubeconfig of a deployed cluster.

    If its API server is reachable only over SSH, also prints how to forward the port.
    """
    from k8sdds.deploy import api_access

    file, instructions = api_access.kubeconfig_and_tunnel(load_profile(profile).name)
    print_text(str(file) if path else file.read_text().rstrip("\n"))
    if instructions:
        print_note(instructions)


@app.add("k8sdds logs one-machine --output logs.tar.gz")
def logs(
    profile: ProfileName,
    output: Annotated[
        Path | None, "--output -o FILE: File to write. Default: NAME-logs-TIME.tar.gz in this directory."
    ] = None,
    *,
    ssh: SshOptions,
) -> None:
    """Collect logs and diagnostics from this machine and from all machines of a cluster.

    The archive contains no keys, tokens or Secrets.
    """
    from k8sdds.deploy import logs as log_archive
    from k8sdds.deploy import profiles

    loaded = load_profile(profile)
    with ssh.connect(profiles.targets(loaded)) as connections:
        written, unreachable = log_archive.collect(loaded, connections, output)
    for error in unreachable:
        print_note(f"left out: {error}")
    print_line(f"wrote {written}")


@app.add("k8sdds destroy one-machine", "k8sdds destroy ./my-lab.yaml --purge")
def destroy(
    profile: ProfileName,
    yes: Yes = False,
    force: Force = False,
    purge: Annotated[
        bool, "--purge: Also remove the packages that deploy installed and the logs on this machine."
    ] = False,
    *,
    ssh: SshOptions,
    dry_run: DryRun = False,
) -> None:
    """Remove a cluster and restore its machines. Local nodes are deleted."""
    from k8sdds.deploy import destroy as flow

    loaded = load_profile(profile)
    destroyed = flow.destroy(
        loaded, lambda question: confirm(question, yes), ActionProgress, print_note,
        purge=purge, dry_run=dry_run, force=force, connect=ssh.connect,
    )  # fmt: skip
    if dry_run and destroyed.changed:
        for action in destroyed.actions:
            print_line(f"would change {action.node}: {action.title}")
        for node in destroyed.local_nodes:
            print_line(f"would delete {node} and all its data")
        return
    if not dry_run:
        selection.deselect(loaded.name)
    if not destroyed.changed:
        print_line("Nothing to destroy.")
    elif destroyed.local_nodes:
        print_line(f"removed {', '.join(destroyed.local_nodes)}")
    else:
        print_line("removed")
