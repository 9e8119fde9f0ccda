"""`testbed`: where experiments are measured by default; and the way from a choice to an open testbed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from k8sdds.cli.options import Json
from k8sdds.cli.terminal import console, say
from k8sdds.system.errors import InputError
from k8sdds.testbeds import selection
from k8sdds.testbeds.selection import CLUSTER, LAB, SelectedTestbed

Kubeconfig = Annotated[
    Path | None, typer.Option("--kubeconfig", help="Of a cluster; else the one that kubectl takes.")
]
Context = Annotated[str | None, typer.Option("--context", help="A context of the kubeconfig.")]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace", help="A namespace that an administrator has prepared; else one per campaign."
    ),
]
PodNetwork = Annotated[
    str | None,
    typer.Option("--pod-network", help="The installed network, where it cannot be told from the nodes."),
]
Meter = Annotated[
    bool | None,
    typer.Option(
        "--meter/--no-meter",
        help="Read the nodes around each block: what the network itself costs (makes a DaemonSet).",
    ),
]
Image = Annotated[str | None, typer.Option("--image", help="Image with the supervisor and perftest.")]


def complete_testbeds(incomplete: str) -> list[str]:
    """Testbeds that begin so, for the shell's completion."""
    return [name for name in (LAB, CLUSTER, *selection.deployed_names()) if name.startswith(incomplete)]


def testbed(
    name: Annotated[
        str | None,
        typer.Argument(
            help="lab, cluster (of the kubeconfig), or the name of one that deploy built.",
            autocompletion=complete_testbeds,
        ),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = None,
    pod_network: PodNetwork = None,
    image: Image = None,
    meter: Meter = None,
    as_json: Json = False,
) -> None:
    """Show the current testbed, or choose another: where `run` measures."""
    options = (kubeconfig, context, namespace, pod_network, image, meter)
    if name is None and any(option is not None for option in options):
        raise InputError("these options describe a cluster", "k8sdds testbed cluster --kubeconfig FILE")
    if name is not None:
        chosen = choose(name, *options)
        if chosen.testbed == CLUSTER:
            _try(chosen)
        selection.write(chosen)
    chosen = selection.read()
    if as_json:
        import json

        say(json.dumps(asdict(chosen), indent=1))
        return
    console().print(f"Testbed: {chosen.describe()}", highlight=False)
    if name is None:
        others = [LAB, *selection.deployed_names(), CLUSTER]
        console().print(f"Others: k8sdds testbed {' | '.join(others)}", highlight=False, markup=False)


def choose(
    name: str | None,
    kubeconfig: Path | None = None,
    context: str | None = None,
    namespace: str | None = None,
    pod_network: str | None = None,
    image: str | None = None,
    meter: bool | None = None,
) -> SelectedTestbed:
    """The testbed that these options mean: by default the current one."""
    now = selection.read()
    given = {
        "kubeconfig": str(kubeconfig.absolute()) if kubeconfig else None, "context": context,
        "namespace": namespace, "network": pod_network, "image": image, "meter": meter,
    }  # fmt: skip
    changes = {key: value for key, value in given.items() if value is not None}
    foreign = "kubeconfig" in changes or "context" in changes
    if name is None:
        name = CLUSTER if foreign else (now.name or now.testbed)
    if name == LAB:
        if changes:
            raise InputError("the lab has no kubeconfig, namespace, image or meter", "give --testbed cluster")
        return SelectedTestbed()
    if name == CLUSTER:
        chosen = _any_cluster(now, foreign)
    elif selection.deployed(name):
        if foreign:
            raise InputError(
                f"{name} was built by deploy and has its own kubeconfig", "leave --kubeconfig out"
            )
        chosen = now if now.name == name else SelectedTestbed(CLUSTER, name)
    else:
        known = ", ".join([LAB, CLUSTER, *selection.deployed_names()])
        raise InputError(f"there is no testbed {name!r} (there is: {known})", "see: k8sdds testbed")
    if pod_network is not None:
        from k8sdds.networks import find

        find(pod_network)
    return replace(chosen, **changes)


def _any_cluster(now: SelectedTestbed, foreign: bool) -> SelectedTestbed:
    """The cluster that `cluster` means: the current one, the only deployed one, or kubectl's."""
    if foreign:
        return SelectedTestbed(CLUSTER)
    if now.testbed == CLUSTER:
        return now
    names = selection.deployed_names()
    if len(names) == 1:
        return SelectedTestbed(CLUSTER, names[0])
    if len(names) > 1:
        raise InputError(f"which cluster? there is {', '.join(names)}", "give its name: --testbed NAME")
    if not os.environ.get("KUBECONFIG") and not (Path.home() / ".kube/config").exists():
        raise InputError(
            "there is no cluster: none was deployed, and kubectl has no kubeconfig",
            "build one: k8sdds deploy one-machine; or give --kubeconfig",
        )
    return SelectedTestbed(CLUSTER)


def _try(chosen: SelectedTestbed) -> None:
    """A cluster that answers and lets us work there, before it becomes the current one."""
    from k8sdds.campaign.preflight import refuse
    from k8sdds.testbeds.cluster import permissions

    with api_of(chosen) as api:
        version = api.get("/version")["gitVersion"]
        refuse(permissions.lacks(api, chosen.namespace))
        console().print(f"{api.server} answers: Kubernetes {version}", highlight=False)


@contextmanager
def api_of(chosen: SelectedTestbed) -> Iterator[Any]:
    """The API of a chosen cluster, reachable as long as the `with`."""
    from k8sdds.kubernetes.client import Api

    if chosen.name:
        from k8sdds.deploy import api_access

        with api_access.reach(chosen.name) as kubeconfig:
            yield Api.of(kubeconfig, None)
    else:
        yield Api.of(Path(chosen.kubeconfig) if chosen.kubeconfig else None, chosen.context)


def psk_of(path: Path | None) -> str | None:
    """The pre-shared key in a file, or None without one."""
    from k8sdds.security import preshared

    return preshared.read(path.expanduser(), "--psk-file", preshared.MIN_CHARACTERS) if path else None


@contextmanager
def opened(chosen: SelectedTestbed, campaign: str, experiment: str, psk_file: Path | None = None) -> Iterator[Any]:
    """The testbed itself, closed at the end. `psk_file`: the lab's own pre-shared key."""
    if chosen.testbed == LAB:
        psk = psk_of(psk_file)
        from k8sdds.testbeds.lab.testbed import Lab

        with Lab(f"{campaign}-{os.getpid()}", experiment, psk) as lab:
            yield lab
    elif psk_file is not None:
        raise InputError(
            "--psk-file is the lab's: a cluster has its key from its profile (network.password_file)",
            "leave it out, or give --testbed lab",
        )
    else:
        from k8sdds.testbeds.cluster.testbed import Cluster

        with api_of(chosen) as api, Cluster(api, chosen, campaign) as cluster:
            yield cluster
