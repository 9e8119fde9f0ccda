"""`status`: the machines of a profile as they are, and whether the profile fits them."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from k8sdds.cli.options import Json
from k8sdds.cli.terminal import console, say
from k8sdds.errors import InputError, LackError


def complete_profiles(incomplete: str) -> list[str]:
    """Names of installed profiles that begin so, for the shell's completion."""
    from k8sdds.deploy import profiles

    return [name for name in profiles.names() if name.startswith(incomplete)]


Profile = Annotated[
    str, typer.Argument(help="Name of a profile, or a YAML file.", autocompletion=complete_profiles)
]
Limit = Annotated[
    list[str] | None, typer.Option("--limit", metavar="NODE", help="Only this node (repeatable).")
]
AcceptKeys = Annotated[
    bool, typer.Option("--accept-new-host-keys", help="Trust and remember host keys that are not known yet.")
]
Concurrency = Annotated[int, typer.Option("--concurrency", min=1, max=200, help="Machines at a time.")]


def status(
    profile: Profile,
    limit: Limit = None,
    accept_new_host_keys: AcceptKeys = False,
    concurrency: Concurrency = 20,
    as_json: Json = False,
) -> None:
    """Look at the machines of a profile over SSH: what they are, and what keeps it from fitting them.

    Changes nothing on them. Exit code 3 where a machine cannot be reached or does not fit.
    """
    from k8sdds.deploy import facts, preflight, profiles
    from k8sdds.hosts import Connections

    wanted = profiles.load(profile)
    profiles.password(wanted)
    known = [node.name for node in wanted.nodes]
    for name in limit or ():
        if name not in known:
            raise InputError(f"--limit {name}: not in this profile", f"it has: {', '.join(known)}")
    targets = [t for t in profiles.targets(wanted) if not limit or t.name in limit]
    with Connections(targets, accept_new_host_keys, concurrency) as connections:
        seen, failures = facts.gather(connections)
    problems = preflight.judge(wanted, seen)
    notes = preflight.notes(wanted, seen)
    if as_json:
        say(
            json.dumps(
                {
                    "profile": wanted.name,
                    "machines": {name: asdict(found) for name, found in seen.items()},
                    "unreached": {name: error.message for name, error in failures.items()},
                    "problems": [asdict(problem) for problem in problems],
                    "notes": notes,
                },
                indent=1,
            )
        )
    else:
        console().print(_table([t.name for t in targets], seen))
        for line in notes:
            console().print(line, highlight=False, markup=False, soft_wrap=True)
    if failures or problems:
        lines = [str(error) for error in failures.values()] + [str(problem) for problem in problems]
        raise LackError(
            "\n".join([f"the profile {wanted.name} does not fit its machines as they are:", *lines])
        )
    if not as_json:
        console().print(f"The profile {wanted.name} fits its {len(seen)} machines.", highlight=False)


def _table(names: list[str], seen: dict[str, Any]) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in (
        "node",
        "arch",
        "system",
        "kernel",
        "cpus",
        "memory",
        "cgroup",
        "containerd",
        "kubelet",
        "cluster",
    ):
        table.add_column(column, overflow="fold")
    for name in names:
        found = seen.get(name)
        if found is None:
            table.add_row(name, "not reached")
            continue
        one = found.one
        table.add_row(
            name,
            found.architecture,
            one.get("os.PRETTY_NAME", "?"),
            one.get("kernel", "?"),
            one.get("cpus", "?"),
            f"{found.number('memory_kib') / 1024**2:.1f} GiB",
            f"v{one.get('cgroup', '?')}",
            one.get("containerd") or "–",
            found.pairs("program").get("kubelet") or "–",
            one.get("marker") or ("another's" if found.all("leftover") else "none"),
        )
    return table
