"""`k8sdds status`: inspect the machines of a profile."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from k8sdds.cli.options import AcceptKeys, Concurrency, Json, Limit, ProfileName, load_profile
from k8sdds.cli.terminal import console, print_text
from k8sdds.system.errors import PrerequisiteError

if TYPE_CHECKING:
    from k8sdds.deploy.facts import Facts
    from k8sdds.model.profile import Profile

COLUMNS = (
    "node", "arch", "system", "kernel", "cpus", "memory", "cgroup", "containerd", "kubelet", "cluster",
)  # fmt: skip


def status(
    profile: ProfileName,
    limit: Limit = None,
    accept_new_host_keys: AcceptKeys = False,
    concurrency: Concurrency = 20,
    as_json: Json = False,
) -> None:
    """Check over SSH whether the machines of a profile fit it. Makes no changes.

    Exits with code 3 if a machine cannot be reached or does not fit the profile.
    """
    from k8sdds.deploy import deploy as flow
    from k8sdds.deploy import profiles
    from k8sdds.system.ssh import Connections

    loaded = load_profile(profile, limit)
    profiles.password(loaded)
    targets = [target for target in profiles.targets(loaded) if not limit or target.name in limit]
    with Connections(targets, accept_new_host_keys, concurrency) as connections:
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
