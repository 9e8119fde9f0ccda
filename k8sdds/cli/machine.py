"""`doctor` and `clean`: what this machine can do, and what was left on it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from k8sdds.cli.options import Json
from k8sdds.cli.terminal import console, say
from k8sdds.cli.testbed import Context, Kubeconfig, Namespace, api_of, choose
from k8sdds.networks.network import Network
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.kernel_features import Capabilities
from k8sdds.testbeds.selection import CLUSTER, LAB, SelectedTestbed

TOOLS = {
    "ip": "iproute2", "bridge": "iproute2", "tc": "iproute2", "nft": "nftables", "ping": "iputils-ping",
    "unshare": "util-linux", "nsenter": "util-linux",
}  # fmt: skip
"""Tools that the lab runs, and the Debian packages that have them."""

WANTED_BUFFER_BYTES = 4 * 1024 * 1024
"""Largest socket receive buffer from which throughput tests do not lose samples to the kernel's limit."""


@dataclass(frozen=True)
class Diagnosis:
    """One thing that was looked at."""

    subject: str
    ok: bool
    says: str
    remedy: str = ""
    needed: bool = True
    """False: without it something is missing, but the lab runs."""


def doctor(as_json: Json = False) -> None:
    """Say what this machine can do, each lack with its remedy. Changes nothing."""
    findings = list(_findings())
    if as_json:
        say(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        for finding in findings:
            sign = "ok  " if finding.ok else ("LACK" if finding.needed else "note")
            console().print(f"{sign} {finding.subject}: {finding.says}", highlight=False, markup=False)
            if not finding.ok and finding.remedy:
                console().print(f"       → {finding.remedy}", highlight=False, markup=False)
    lacks = [finding.subject for finding in findings if not finding.ok and finding.needed]
    if lacks:
        raise PrerequisiteError(f"this machine lacks: {', '.join(lacks)}", "see the remedies above")


def _findings() -> Iterator[Diagnosis]:
    yield from _programs()
    yield from _kernel()
    yield from _resources()


def _programs() -> Iterator[Diagnosis]:
    from k8sdds.perftest import command
    from k8sdds.system.paths import native_program

    for tool, package in TOOLS.items():
        if not shutil.which(tool):
            yield Diagnosis(tool, False, "not found", f"sudo apt-get install {package}")
    for program in ("k8sdds-perftest", "k8sdds-supervisor"):
        try:
            yield Diagnosis(program, True, native_program(program))
        except PrerequisiteError as error:
            yield Diagnosis(program, False, error.message, error.remedy)
            return
    built = command.backends()
    yield Diagnosis("middlewares", "cyclonedds" in built, ", ".join(built) or "none", "make setup")


def _kernel() -> Iterator[Diagnosis]:
    from k8sdds.networks import NETWORKS
    from k8sdds.system import kernel_features
    from k8sdds.system.sandbox import unprivileged_remedy

    lack = kernel_features.namespaces_lack()
    who = "as root" if os.geteuid() == 0 else "as an ordinary user"
    yield Diagnosis("namespaces", not lack, lack or f"can be made {who}", unprivileged_remedy())
    if lack:
        return
    found = kernel_features.probe()
    # What only one engine of a network needs is told, but its lack is no lack of the machine.
    networks_need = {need for network in NETWORKS.values() for need in network.needs}
    for name, feature in kernel_features.FEATURES.items():
        says = found.lacks.get(name, "works")
        needed = name in networks_need or name == "veth"
        kind = "kernel" if feature.modules else "programs"
        yield Diagnosis(
            f"{kind}: {name} ({feature.purpose})", found.has(name), says, kernel_features.remedy(name), needed
        )
    for network in NETWORKS.values():
        missing = [need for need in network.needs if not found.has(need)]
        if network.engines and not missing:
            yield _engines(network, found)
            continue
        yield Diagnosis(
            f"network {network.name}",
            not missing,
            f"needs {', '.join(missing)}" if missing else "can run here",
        )


def _engines(network: Network, found: Capabilities) -> Diagnosis:
    """Which engine of a network this machine has, and why not the plugin's own."""
    from k8sdds.system import kernel_features

    lacks = {one.title: [need for need in one.needs if not found.has(need)] for one in network.engines}
    usable = [title for title, missing in lacks.items() if not missing]
    why = "; ".join(
        f"no {title}: {need}: {found.lacks[need]}" for title, missing in lacks.items() for need in missing
    )
    says = "; ".join(filter(None, [f"can run here by {usable[0]}" if usable else "", why]))
    first = next((missing for missing in lacks.values() if missing), [])
    return Diagnosis(
        f"network {network.name}", not first, says,
        "; ".join(kernel_features.remedy(need) for need in first), needed=False,
    )  # fmt: skip


def _resources() -> Iterator[Diagnosis]:
    from k8sdds.system import cgroups
    from k8sdds.testbeds import core_layout
    from k8sdds.testbeds.lab import facts

    count = len(core_layout.available())
    yield Diagnosis(
        "cores", count > 1, f"{count}", "with one core the numbers include scheduling", needed=False,
    )  # fmt: skip
    try:
        limit = int(Path("/proc/sys/net/core/rmem_max").read_text())
        yield Diagnosis(
            "socket receive buffers", limit >= WANTED_BUFFER_BYTES, f"up to {limit} bytes",
            f"sudo sysctl -w net.core.rmem_max={WANTED_BUFFER_BYTES * 4}", needed=False,
        )  # fmt: skip
    except OSError:
        pass
    own = cgroups.own()
    writable = bool(own.folders) and all(os.access(folder, os.W_OK) for folder in own.folders.values())
    yield Diagnosis(
        "cgroups", writable, own.version + ("" if writable else ", not writable: CPU time comes from /proc"),
        "run as root for cgroups of pods and CPU quotas", needed=False,
    )  # fmt: skip
    for disturbance in facts.interference():
        yield Diagnosis("quiet machine", False, disturbance, "end other work while measuring", needed=False)


def clean(
    everything: Annotated[bool, typer.Option("--all", help="Also what still stands or is in use.")] = False,
    on: Annotated[
        str | None,
        typer.Option("--testbed", help="What is left on a cluster: cluster, or a deployed one's name."),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """Remove what a killed command or a power cut left: exactly what k8sdds made, and nothing else."""
    of_cluster = kubeconfig or context or namespace
    chosen = choose(on or (CLUSTER if of_cluster else LAB), kubeconfig, context, namespace)
    removed, kept, failed = _clean_here(everything) if chosen.testbed == LAB else _clean(chosen, everything)
    if as_json:
        say(json.dumps({"removed": removed, "kept": kept, "failed": failed}))
    else:
        for name in removed:
            console().print(f"removed {name}", highlight=False)
        for name in kept:
            console().print(f"kept {name}: it is in use", highlight=False)
        if not removed and not kept and not failed:
            console().print("Nothing was left.")
    if failed:
        raise PrerequisiteError(f"could not be removed: {', '.join(failed)}", "end the processes in them, then again")


def _clean(chosen: SelectedTestbed, everything: bool) -> tuple[list[str], list[str], list[str]]:
    """What was removed from a cluster, and what was kept for a process that still works with it."""
    from k8sdds.testbeds.cluster import namespace as spaces

    removed, kept = [], []
    with api_of(chosen) as api:
        for left in spaces.leftovers(api, chosen.namespace):
            name = f"{left.name} in namespace {left.space.namespace}"
            if left.in_use and not everything:
                kept.append(f"{name} ({left.in_use})")
                continue
            left.space.remove()
            removed.append(name)
    return removed, kept, []


def _clean_here(everything: bool) -> tuple[list[str], list[str], list[str]]:
    from k8sdds.system import ssh
    from k8sdds.testbeds.lab import records

    removed, kept, failed = [], [], []
    for record in records.all_labs():
        if record.in_use and not (everything and record.kind == "lab"):
            kept.append(record.name)
            continue
        left = records.remove(record)
        (failed if left else removed).append(record.name)
    if os.geteuid() == 0:
        from k8sdds import nodes

        clusters = nodes.clean(everything)
        removed += [f"nodes of {name}" for name in clusters[0]]
        kept += [f"nodes of {name}" for name in clusters[1]]
    removed += ssh.clean()
    return removed, kept, failed
