"""`k8sdds clean`: remove what interrupted commands left on this machine or on a cluster."""

from __future__ import annotations

import json
import os
from typing import Annotated

from k8sdds.cli.commands import Commands, option, testbed_option
from k8sdds.cli.options import ClusterOptions, Context, DryRun, Kubeconfig, any_given
from k8sdds.cli.output import Json
from k8sdds.cli.terminal import print_line, print_note, print_text
from k8sdds.cli.testbed import cluster_api, select
from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds.selection import CLUSTER, LAB, SelectedTestbed

app = Commands()


@app.add("k8sdds clean", "k8sdds clean --all", "k8sdds clean --testbed cluster")
def clean(
    everything: Annotated[
        bool, option("--all", "Also remove labs that are up and leftovers still in use.")
    ] = False,
    on: Annotated[
        str | None,
        testbed_option(
            "--testbed NAME",
            "Clean a cluster instead: cluster, or the name of a deployed cluster. Default: this machine.",
        ),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Annotated[
        str | None,
        testbed_option(
            "--namespace -n NAME", "Clean this existing namespace. Default: the namespaces of all campaigns."
        ),
    ] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Remove leftovers of killed commands and power cuts. Touches only what k8sdds created."""
    cluster = ClusterOptions(kubeconfig, context, namespace)
    selected = select(on or (CLUSTER if any_given(cluster) else LAB), cluster)
    if selected.testbed == LAB:
        removed, kept, failed = _clean_this_machine(everything, dry_run)
    else:
        removed, kept, failed = _clean_cluster(selected, everything, dry_run)
    if as_json:
        key = "would_remove" if dry_run else "removed"
        print_text(json.dumps({key: removed, "kept": kept, "failed": failed}))
    else:
        done = "would remove" if dry_run else "removed"
        for name in removed:
            print_line(f"{done} {name}")
        for name in kept:
            print_line(f"kept {name}: it is in use")
        if not removed and not kept and not failed:
            print_line("Nothing to clean.")
    if failed:
        raise PrerequisiteError(
            f"cannot remove: {', '.join(failed)}", "stop their processes, then run k8sdds clean again"
        )


def _clean_cluster(
    selected: SelectedTestbed, everything: bool, dry_run: bool
) -> tuple[list[str], list[str], list[str]]:
    """Remove leftovers from a cluster; return what was removed, kept because in use, and not removable."""
    from k8sdds.testbeds.cluster import namespace as campaign_namespace

    removed, kept = [], []
    with cluster_api(selected) as client:
        for leftover in campaign_namespace.leftovers(client, selected.namespace):
            name = f"{leftover.namespace.title} in namespace {leftover.namespace.name}"
            if leftover.in_use and not everything:
                kept.append(f"{name} ({leftover.in_use})")
                continue
            if not dry_run:
                leftover.namespace.delete()
            removed.append(name)
    return removed, kept, []


def _clean_this_machine(everything: bool, dry_run: bool) -> tuple[list[str], list[str], list[str]]:
    """Remove leftovers from this machine; return what was removed, kept because in use, and not removable."""
    from k8sdds.testbeds.lab import records

    removed: list[str] = []
    kept: list[str] = []
    failed: list[str] = []
    for record in records.all_labs():
        if record.in_use and not (everything and record.kind == "lab"):
            kept.append(record.name)
            continue
        remaining = [] if dry_run else records.remove(record)
        (failed if remaining else removed).append(record.name)
    for path in records.damaged():
        print_note(f"{path} is damaged: delete it, if none of its labs runs")
    for path in records.unfinished():
        if not dry_run:
            path.unlink(missing_ok=True)
        removed.append(str(path))
    if os.geteuid() == 0:
        from k8sdds import nodes

        removed_clusters, kept_clusters = nodes.clean(everything, dry_run)
        removed += [f"nodes of {name}" for name in removed_clusters]
        kept += [f"nodes of {name}" for name in kept_clusters]
    return removed, kept, failed
