"""What stands against trials on a cluster, before anything is made there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from k8sdds import middleware, versions
from k8sdds.model.experiment import Experiment, Link
from k8sdds.model.placement import same_node
from k8sdds.model.trial import Cell
from k8sdds.networks import find
from k8sdds.system.errors import InputError, Problem
from k8sdds.testbeds.cluster.nodes import Node, assign, usable


def unfit(cells: Sequence[Cell], switched: bool) -> list[Problem]:
    """What cannot be on a cluster; `switched`: on one whose network k8sdds can replace."""
    problems: dict[str, Problem] = {}

    def add(what: str, remedy: str) -> None:
        problems.setdefault(what, Problem(what, remedy, input=True))

    for cell in cells:
        if cell.network == "baremetal":
            add("baremetal runs in no pod: a cluster has no place for it", "leave it out, or: --testbed lab")
        if cell.link != Link():
            add(
                "a cluster's links are as they are: `link` shapes those of the lab",
                "leave it out, or: --testbed lab",
            )
        if cell.services:
            for what, remedy in middleware.find(cell.middleware).service_problems():
                add(what, remedy)
        if "mtu" in cell.network_options and not switched:
            add(
                f"{cell.network_label}: the network of this cluster is as it is: no mtu can be asked of it",
                "leave it out, or measure on a cluster of `k8sdds deploy`",
            )
        if cell.capture:
            add("`capture` needs the lab's links", "leave it out, or: --testbed lab")
    return list(problems.values())


def only(experiment: Experiment, there: Sequence[str], asked: Sequence[str]) -> tuple[Experiment, list[str]]:
    """The experiment without networks that are not there, and their labels.

    Those that were asked for by name stay, so that the check can refuse them; so does everything in an
    experiment that would lose its baseline.
    """
    left_out: dict[str, None] = {}
    sweeps = []
    for sweep in experiment.sweeps:
        here = [one for one in sweep.networks if one.name in there or one.name in asked]
        left_out |= dict.fromkeys(one.label or one.name for one in sweep.networks if one not in here)
        if here:
            sweeps.append(sweep.model_copy(update={"networks": here}).at(sweep.where))
    labels = {choice.label or choice.name for sweep in sweeps for choice in sweep.networks}
    if experiment.baseline not in labels:
        return experiment, []
    return experiment.model_copy(update={"sweeps": sweeps}), list(left_out)


def networks(
    cells: Sequence[Cell], there: Sequence[str], lack: Callable[[str], str] = lambda name: ""
) -> list[Problem]:
    """Networks that are asked for and not there; `lack`: why one cannot be installed, where that is known."""
    wanted = dict.fromkeys(cell.network for cell in cells)
    missing = [name for name in wanted if name not in there]
    if not missing:
        return []
    if there == ["host"]:
        return [
            Problem(
                "which pod network this cluster has cannot be told from here",
                "name it: --pod-network NAME; names: k8sdds list --networks",
            )
        ]
    known = ", ".join(there)
    reasons = {name: why for name in missing if (why := lack(name))}
    if reasons:
        return [
            Problem(f"{name} cannot be installed on this cluster: {why}", f"leave it out: it has {known}")
            for name, why in reasons.items()
        ]
    return [
        Problem(
            f"this cluster does not have the network{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
            f" (it has: {known})",
            "leave them out: --network; or, where another one is installed, name it: --pod-network",
        )
    ]


def placement(cells: Sequence[Cell], nodes: Sequence[Node], image: str) -> list[Problem]:
    """Nodes that are missing, not ready, of another architecture, or without the image."""
    if not nodes:
        return []  # nobody may ask; the pods will tell
    fit = usable(nodes, versions.BUNDLE_ARCHITECTURES)
    problems: dict[str, Problem] = {}
    used: set[str] = set()
    for cell in cells:
        architectures = find(cell.network).architectures
        try:
            found = assign(cell, [node for node in fit if node.arch in architectures])
        except InputError as error:
            why = "; ".join(
                f"{node.name}: {node.unfit or f'is {node.arch}'}" for node in nodes if node not in fit
            )
            what = error.message + (f" (not used: {why})" if why else "")
            problems.setdefault(what, Problem(what, error.remedy))
            continue
        pair = same_node(found)
        if pair:
            what = (
                f"{cell.describe()}: {pair[0]} and {pair[1]} are both on node {found[pair[0]]}:"
                " samples would not cross a link"
            )
            problems.setdefault(what, Problem(what, "give another placement, or add a node", input=True))
        used |= set(found.values())
    foreign = next(
        (
            arch
            for arch in versions.BUNDLE_ARCHITECTURES
            if image.startswith(versions.LOCAL_REGISTRY) and image.endswith(f"-{arch}")
        ),
        "",
    )
    wrong = [node.name for node in fit if node.name in used and foreign and node.arch != foreign]
    if wrong:
        what = f"the image {image} is for {foreign}, to be emulated by hand: {', '.join(wrong)} cannot run it"
        problems[image] = Problem(what, f"--image {image.removesuffix(f'-{foreign}')}", input=True)
    elif image.startswith(versions.LOCAL_REGISTRY):
        # An empty list says nothing: kubelets may be told not to report images.
        bare = [node.name for node in fit if node.name in used and node.images and image not in node.images]
        if bare:
            problems[image] = Problem(
                f"the image {image} is not on {', '.join(bare)}", "k8sdds images load; see docs/cluster.md"
            )
    return list(problems.values())
