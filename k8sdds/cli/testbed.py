"""`k8sdds testbed`: show or change the current testbed; select and open testbeds for other commands."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from k8sdds.cli.commands import Commands, completion, option
from k8sdds.cli.options import ClusterOptions, DryRun, any_given
from k8sdds.cli.output import DataOutput
from k8sdds.cli.terminal import print_line, print_step
from k8sdds.system.errors import InputError
from k8sdds.testbeds import selection
from k8sdds.testbeds.selection import CLUSTER, LAB, SelectedTestbed

if TYPE_CHECKING:
    from k8sdds.kubernetes.client import KubernetesClient
    from k8sdds.testbeds import Testbed

app = Commands()


@app.add(
    "k8sdds testbed", "k8sdds testbed lab", "k8sdds testbed cluster --kubeconfig ~/.kube/config -n robots"
)
def testbed(
    name: Annotated[
        str | None,
        option(
            "NAME: lab, cluster (the kubeconfig's cluster), or the name of a deployed cluster.",
            autocompletion=completion("testbeds.selection", "names"),
        ),
    ] = None,
    *,
    cluster: ClusterOptions,
    dry_run: DryRun = False,
    out: DataOutput,
) -> None:
    """Show or change the current testbed, where `k8sdds run` measures."""
    if name is None and any_given(cluster):
        raise InputError("these options require a testbed", "run: k8sdds testbed cluster --kubeconfig FILE")
    if name is not None:
        selected = select(name, cluster)
        if selected.testbed == CLUSTER:
            _check_access(selected)
        if not dry_run:
            selection.write(selected)
    else:
        selected = selection.read()
    title = "would select the testbed" if dry_run and name is not None else "Testbed"
    out.print(asdict(selected), lambda: print_line(f"{title}: {selected.describe()}"))
    if name is None and out.is_text:
        names = " | ".join([LAB, *selection.deployed_names(), CLUSTER])
        print_step(f"To change it: k8sdds testbed {names}")


def select(name: str | None, cluster: ClusterOptions) -> SelectedTestbed:
    """Return the testbed that the options select; without options, the current one."""
    current = selection.read()
    changes = {key: value for key, value in asdict(cluster).items() if value is not None}
    if changes.get("image_login") == Path():
        changes["image_login"] = None
    for key in {"kubeconfig", "image_login"} & {key for key, value in changes.items() if value is not None}:
        changes[key] = str(changes[key].absolute())
    has_kubeconfig = "kubeconfig" in changes or "context" in changes
    if name is None:
        name = CLUSTER if has_kubeconfig else (current.name or current.testbed)
    if name == LAB:
        if changes:
            raise InputError(
                "the lab takes no option of a cluster, such as --kubeconfig, --namespace (-n), --image or --meter",
                "add --testbed cluster; to choose a network: --network",
            )
        return SelectedTestbed()
    if name == CLUSTER:
        selected = _default_cluster(current, has_kubeconfig)
    elif selection.deployed_kubeconfig(name):
        if has_kubeconfig:
            raise InputError(
                f"the deployed cluster {name} has its own kubeconfig", "leave out --kubeconfig and --context"
            )
        selected = current if current.name == name else SelectedTestbed(CLUSTER, name)
    else:
        known = ", ".join([LAB, CLUSTER, *selection.deployed_names()])
        raise InputError(f"unknown testbed {name!r} (known: {known})", "see: k8sdds testbed")
    if "pod_network" in changes:
        from k8sdds.networks import find

        find(changes["pod_network"])
        changes["network"] = changes.pop("pod_network")
    selected = replace(selected, **changes)
    _check_taints(selected.taints)
    return selected


def _check_taints(taints: Iterable[str]) -> None:
    from k8sdds.model.profile import TAINT

    for taint in taints:
        if "=" in taint or not re.fullmatch(TAINT, taint):
            raise InputError(f"--tolerate: {taint!r} is not KEY:EFFECT", "list them: kubectl describe nodes")


def _default_cluster(current: SelectedTestbed, has_kubeconfig: bool) -> SelectedTestbed:
    """Return the cluster that the name `cluster` means.

    This is, in this order: the cluster of the given kubeconfig or context, the current testbed if it is a
    cluster, the only deployed cluster, the cluster that kubectl uses.
    """
    if has_kubeconfig:
        return SelectedTestbed(CLUSTER)
    if current.testbed == CLUSTER:
        return current
    names = selection.deployed_names()
    if len(names) == 1:
        return SelectedTestbed(CLUSTER, names[0])
    if len(names) > 1:
        raise InputError(
            f"there is more than one deployed cluster: {', '.join(names)}", "choose one: --testbed NAME"
        )
    if not os.environ.get("KUBECONFIG") and not (Path.home() / ".kube/config").exists():
        raise InputError(
            "no cluster found: none is deployed, and there is no kubeconfig for kubectl",
            "build one: k8sdds deploy one-machine; or add --kubeconfig FILE",
        )
    return SelectedTestbed(CLUSTER)


def _check_access(selected: SelectedTestbed) -> None:
    """Check that a cluster is reachable and that the user has the required permissions."""
    from k8sdds.campaign.preflight import refuse
    from k8sdds.testbeds.cluster import permissions

    with cluster_api(selected) as client:
        version = client.get("/version")["gitVersion"]
        refuse(permissions.missing_rights(client, selected.namespace))
        print_step(f"{client.server} is reachable: Kubernetes {version}")


@contextmanager
def cluster_api(selected: SelectedTestbed) -> Iterator[KubernetesClient]:
    """Provide the API client of a cluster within a `with` block."""
    from k8sdds.kubernetes.client import KubernetesClient

    if selected.name:
        from k8sdds.deploy import api_access

        with api_access.client(selected.name) as client:
            yield client
    else:
        yield KubernetesClient.from_kubeconfig(
            Path(selected.kubeconfig) if selected.kubeconfig else None, selected.context
        )


def read_psk(path: Path | None) -> str | None:
    """Read the pre-shared key from a file; None without a file."""
    from k8sdds.networks.common import strongswan
    from k8sdds.security import preshared

    return preshared.read(path.expanduser(), "--psk-file", strongswan.MIN_PSK_CHARACTERS) if path else None


@contextmanager
def open_testbed(
    selected: SelectedTestbed, campaign: str, experiment: str, psk_file: Path | None = None
) -> Iterator[Testbed]:
    """Open a testbed for a campaign and close it at the end of the `with` block.

    The name of the campaign labels what the testbed creates; the records of the lab have that of the experiment.
    """
    if selected.testbed == LAB:
        from k8sdds.testbeds.lab.testbed import Lab

        with Lab(f"{campaign}-{os.getpid()}", experiment, read_psk(psk_file)) as lab:
            yield lab
    elif psk_file is not None:
        raise InputError(
            "--psk-file applies to the lab only: on a cluster, the profile's network.password_file applies",
            "leave out --psk-file, or add --testbed lab",
        )
    else:
        from k8sdds.testbeds.cluster.testbed import ClusterTestbed

        with cluster_api(selected) as client, ClusterTestbed(client, selected, campaign) as cluster:
            yield cluster
