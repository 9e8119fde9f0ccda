"""`k8sdds setup`, `doctor` and `clean`: prepare this machine, check its prerequisites, and remove leftovers."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from k8sdds.cli.commands import Commands
from k8sdds.cli.options import ClusterOptions, Context, DryRun, Kubeconfig, Yes, any_given
from k8sdds.cli.output import Json, RowsOutput
from k8sdds.cli.progress import Steps
from k8sdds.cli.terminal import confirm, console, print_line, print_note, print_step, print_text
from k8sdds.cli.testbed import cluster_api, select
from k8sdds.report.text import paragraph
from k8sdds.system import kernel_features
from k8sdds.system.errors import InputError, PrerequisiteError
from k8sdds.system.kernel_features import Capabilities
from k8sdds.system.paths import native_program
from k8sdds.testbeds.selection import CLUSTER, LAB, SelectedTestbed

if TYPE_CHECKING:
    from k8sdds.networks.network import Network

app = Commands()


@app.add("k8sdds setup", "k8sdds setup --for deploy-arm64", "k8sdds setup --dry-run")
def setup(
    names: Annotated[
        list[str] | None,
        "--for PURPOSE: lab (default): measure in the lab. lab-cilium: also the networks cilium-*. lab-zenoh:"
        " also Zenoh, which takes minutes to compile. lab-ros2: also ROS 2, which is downloaded. deploy:"
        " create clusters. deploy-arm64, deploy-amd64: create clusters of such machines, with a cross compiler"
        " if necessary. tests: run the tests. (Repeatable.)",
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Prepare this machine: install Debian packages, load kernel modules, build the native programs.

    Shows what is missing and asks before it changes anything. Uses sudo unless you are root.
    """
    from k8sdds.setup import PURPOSES, apply, plan

    names = names or ["lab"]
    for name in names:
        if name not in PURPOSES:
            raise InputError(f"--for {name}: there is no such purpose", f"use one of: {', '.join(PURPOSES)}")
    missing = plan([PURPOSES[name] for name in names])
    for line in missing.describe():
        console(stderr=not dry_run).print(line, soft_wrap=True)
    if missing.describe():
        if dry_run:
            return
        confirm("Continue?", yes)
        with Steps() as steps:
            apply(missing, print_note, steps.detail)
    print_step(f"Ready. Next: {PURPOSES[names[-1]].next}")


MIN_BUFFER_BYTES = 4 * 1024 * 1024
"""Smallest limit of socket receive buffers at which throughput tests do not lose samples in the kernel."""


Diagnosis = dict[str, Any]
"""The result of one check, with the keys of `doctor --json`."""


def _checked(subject: str, ok: bool, says: str, remedy: str = "", required: bool = True) -> Diagnosis:
    """Return a result; what is not `required` is missing for some networks or tests only."""
    return {"subject": subject, "ok": ok, "says": says, "remedy": remedy, "needed": required}


@app.add("k8sdds doctor", "k8sdds doctor --json")
def doctor(out: RowsOutput) -> None:
    """Check this machine's prerequisites and suggest fixes. Makes no changes."""
    diagnoses = [*_programs(), *_kernel(), *_resources()]
    out.print(diagnoses, lambda: _show(diagnoses))
    missing = [one["subject"] for one in diagnoses if one["needed"] and not one["ok"]]
    if missing:
        raise PrerequisiteError(f"missing prerequisites: {', '.join(missing)}", "apply the fixes above")


def _show(diagnoses: Sequence[Diagnosis]) -> None:
    """Print what is missing for the lab, then what works, then what only some networks and tests require."""
    for one in sorted(diagnoses, key=lambda one: (one["ok"] or not one["needed"], not one["ok"])):
        status = "ok   " if one["ok"] else ("FAIL " if one["needed"] else "note ")
        paragraph(console(), f"{one['subject']}: {one['says']}", status)
        if not one["ok"] and one["remedy"]:
            paragraph(console(), one["remedy"], "       → ")


def _programs() -> Iterator[Diagnosis]:
    from k8sdds.setup.native import PROGRAMS
    from k8sdds.setup.packages import TOOLS
    from k8sdds.workloads import tool_packages
    from k8sdds.workloads.tools import PATH

    for tool in TOOLS:
        if not shutil.which(tool):
            yield _checked(tool, False, "not found", "run: k8sdds setup")
    for tool in tool_packages():
        if tool not in TOOLS and not shutil.which(tool, path=PATH):
            yield _checked(
                tool, False, "not found: tests that run it are refused", "run: k8sdds setup", required=False
            )
    for program in PROGRAMS:
        try:
            yield _checked(program, True, native_program(program))
        except PrerequisiteError as error:
            yield _checked(program, False, error.message, error.remedy)
            return
    yield from _middlewares(Path(native_program("k8sdds-perftest")).parent)


def _middlewares(folder: Path) -> Iterator[Diagnosis]:
    from k8sdds.middleware import MIDDLEWARES
    from k8sdds.middleware.k8sdds_perftest import build_record
    from k8sdds.model.settings import DEFAULT_MIDDLEWARE

    built = build_record(folder)
    for name, middleware in MIDDLEWARES.items():
        problems = middleware.problems([], "lab")
        yield _checked(
            f"middleware {name}",
            not problems,
            "; ".join(problem.what for problem in problems) or built.get(name, "ready"),
            "; ".join(problem.remedy for problem in problems),
            required=name == DEFAULT_MIDDLEWARE,
        )


def _kernel() -> Iterator[Diagnosis]:
    from k8sdds.campaign import experiments
    from k8sdds.networks import NETWORKS, features, find
    from k8sdds.system.sandbox import unprivileged_remedy

    obstacle = kernel_features.namespaces_error()
    user = "root" if os.geteuid() == 0 else "an unprivileged user"
    yield _checked("namespaces", not obstacle, obstacle or f"can be created as {user}", unprivileged_remedy())
    if obstacle:
        return
    optional = (*features(), kernel_features.PERF)
    capabilities = kernel_features.probe(optional)
    # The lab is useful without the other networks, and without features that only one of a network's engines requires.
    required = {
        choice.name for sweep in experiments.load(experiments.FIRST).sweeps for choice in sweep.networks
    }
    required_features = {kernel_features.VETH, *(need for name in required for need in find(name).requires)}
    for feature in optional:
        kind = "kernel" if feature.modules else "programs"
        yield _checked(
            f"{kind}: {feature.name} ({feature.purpose})",
            capabilities.has(feature.name),
            capabilities.missing.get(feature.name, "works"),
            kernel_features.remedy(feature),
            feature in required_features,
        )
    for network in NETWORKS.values():
        missing = [need.name for need in network.requires if not capabilities.has(need.name)]
        if network.engines and not missing:
            yield _engines(network, capabilities)
            continue
        yield _checked(
            f"network {network.name}",
            not missing,
            f"requires {', '.join(missing)}" if missing else "can run here",
            "see the notes above" if missing else "",
            required=network.name in required,
        )


def _engines(network: Network, capabilities: Capabilities) -> Diagnosis:
    """Check which engines of a network this machine supports; ok if it supports all of them."""
    missing = {
        engine.title: [need.name for need in engine.requires if not capabilities.has(need.name)]
        for engine in network.engines
    }
    usable = [title for title, needs in missing.items() if not needs]
    unusable = [
        f"not with {title}, which requires {', '.join(needs)}" for title, needs in missing.items() if needs
    ]
    return _checked(
        f"network {network.name}",
        not unusable,
        "; ".join([f"can run here with {usable[0]}" if usable else "cannot run here", *unusable]),
        "see the notes above" if unusable else "",
        required=False,
    )


def _resources() -> Iterator[Diagnosis]:
    from k8sdds.system import cgroups
    from k8sdds.testbeds import core_layout
    from k8sdds.testbeds.lab import facts, preflight

    cores = len(core_layout.available())
    yield _checked(
        "cores", cores > 1, f"{cores}", "with one core the results include scheduling", required=False
    )
    try:
        limit = int(Path("/proc/sys/net/core/rmem_max").read_text())
        yield _checked(
            "socket receive buffers", limit >= MIN_BUFFER_BYTES, f"up to {limit} bytes",
            f"sudo sysctl -w net.core.rmem_max={MIN_BUFFER_BYTES * 4}", required=False,
        )  # fmt: skip
    except OSError:
        pass
    own = cgroups.own_cgroup()
    writable = bool(own.folders) and all(os.access(folder, os.W_OK) for folder in own.folders.values())
    yield _checked(
        "cgroups",
        writable,
        own.version + ("" if writable else ", not writable: CPU time is read from /proc"),
        "run as root to use cgroups for pods",
        required=False,
    )
    obstacles = preflight.limit_problems([cgroups.CpuResources(quota=0.5)])
    yield _checked(
        "CPU limits of pods",
        not obstacles,
        obstacles[0].what if obstacles else "can be set",
        # That of the problem is for an experiment with such limits.
        "run as root, with the cgroup controller cpu (v2: in cgroup.subtree_control of the root)",
        required=False,
    )
    for interference in facts.interference():
        yield _checked(
            "quiet machine", False, interference, "stop other work while measuring", required=False
        )


@app.add("k8sdds clean", "k8sdds clean --all", "k8sdds clean --testbed cluster")
def clean(
    everything: Annotated[bool, "--all: Also remove labs that are up and leftovers still in use."] = False,
    on: Annotated[
        str | None,
        "--testbed NAME: Clean a cluster instead: cluster, or the name of a deployed cluster. Default: this"
        " machine.",
        "Testbed",
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Annotated[
        str | None,
        "--namespace -n NAME: Clean this existing namespace. Default: the namespaces of all campaigns.",
        "Testbed",
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
            f"cannot remove: {', '.join(failed)}", "stop what uses them, then run k8sdds clean again"
        )


def _clean_cluster(
    selected: SelectedTestbed, everything: bool, dry_run: bool
) -> tuple[list[str], list[str], list[str]]:
    """Remove leftovers from a cluster; return what was removed, kept because in use, and not removable."""
    from k8sdds.testbeds.cluster import namespace as campaign_namespace

    removed, kept, failed = [], [], []
    with cluster_api(selected) as client:
        for leftover in campaign_namespace.leftovers(client, selected.namespace):
            name = f"{leftover.namespace.title} in namespace {leftover.namespace.name}"
            if leftover.in_use and not everything:
                kept.append(f"{name} ({leftover.in_use})")
                continue
            if not dry_run:
                leftover.namespace.delete()
            removed.append(name)
    if selected.name and not kept:
        from k8sdds.deploy import node_links

        restored, failures = node_links.restore(selected.name, dry_run)
        removed += [f"the emulated link of {node}" for node in restored]
        failed = [f"the emulated link of {node} ({why.message})" for node, why in failures.items()]
    return removed, kept, failed


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

        for path in nodes.damaged():
            print_note(f"{path} is damaged: delete it, if its nodes do not run, and run k8sdds clean again")
        removed_clusters, kept_clusters = nodes.clean(everything, dry_run)
        removed += [f"nodes of {name}" for name in removed_clusters]
        kept += [f"nodes of {name}" for name in kept_clusters]
    return removed, kept, failed
