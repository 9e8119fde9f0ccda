"""Destroy a cluster: stop its processes, remove the leftovers of its network, and restore the machines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from k8sdds import nodes
from k8sdds.deploy import local_nodes, node_link_scripts, profiles, record, running_campaigns, tuning
from k8sdds.deploy.actions import CACHE_FOLDER, IMAGES_BEFORE, STATE, Action
from k8sdds.deploy.deploy import MachineSurvey, survey
from k8sdds.deploy.network_switch.footprint import remove_leftovers
from k8sdds.deploy.phases.kubeadm import CRI_SOCKET
from k8sdds.deploy.runner import Observer, Runner
from k8sdds.deploy.scripts import shell
from k8sdds.model.profile import Profile
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.ssh import Connect, Connections

STOP, RESTORE = "stop", "restore"

# Only the content of folders is deleted: they may be mount points, or older than the cluster.
_STOP = shell("stop", CACHE_FOLDER=CACHE_FOLDER, CRI_SOCKET=CRI_SOCKET)

# Deletes the rules of kube-proxy and the kubelet, which kubeadm reset keeps.
_RULES = shell("delete_rules")

# Runs after leftovers of networks are removed, since that may need a program from an image.
_RESTORE = shell("restore", IMAGES_BEFORE=IMAGES_BEFORE, STATE=STATE)
_CONTAINERD = shell("restore_containerd", STATE=STATE)
_PURGE = shell("purge", STATE=STATE)


@dataclass(frozen=True)
class Destroyed:
    """Result of a destroy."""

    changed: bool
    """False: there was nothing to destroy."""
    local_nodes: Sequence[str] = ()
    """Names of the deleted local nodes."""
    actions: Sequence[Action] = ()
    """The changes of other machines."""


def destroy(
    profile: Profile,
    confirm: Callable[[str], None],
    progress: Callable[[Sequence[Action]], AbstractContextManager[Observer]],
    note: Callable[[str], None],
    *,
    purge: bool,
    dry_run: bool,
    force: bool,
    connect: Connect,
) -> Destroyed:
    """Destroy the cluster of a profile and delete its record; delete local nodes, restore other machines.

    `confirm` asks the user, and raises if the answer is no, or cannot be given; `progress` shows that of a plan.
    `purge` removes packages that deploy installed, and the logs on this machine. With `dry_run`, nothing is changed.
    `force` destroys the cluster although a campaign is running on it.
    """
    if profile.provider == "local":
        return _delete_local_nodes(profile, dry_run, force, confirm, note)
    with record.locked(profile.name), connect(profiles.targets(profile)) as connections:
        machines = survey(profile, connections)
        actions = plan(profile, machines, purge)
        if dry_run:
            return Destroyed(bool(actions), actions=actions)
        if actions:
            control_plane = connections.hosts[profile.control_plane.name]
            names = ", ".join(dict.fromkeys(action.node for action in actions))
            running_campaigns.ask(
                partial(running_campaigns.refuse, control_plane, force), note,
                lambda: confirm(f"Destroy cluster {profile.name} on these machines: {names}?"),
            )  # fmt: skip
            with progress(actions) as observer:
                apply_plan(profile, machines, actions, connections, observer)
    record.delete(profile.name, keep_logs=not purge)
    return Destroyed(bool(actions), actions=actions)


def _delete_local_nodes(
    profile: Profile,
    dry_run: bool,
    force: bool,
    confirm: Callable[[str], None],
    note: Callable[[str], None],
) -> Destroyed:
    names = list(local_nodes.existing(profile))
    if not names and record.read(profile.name) is None:
        return Destroyed(False)
    if dry_run:
        return Destroyed(True, names)
    running_campaigns.ask(
        partial(running_campaigns.refuse_on_local_nodes, profile, force), note,
        lambda: confirm(f"Delete the local nodes {', '.join(names)} and all their data?"),
    )  # fmt: skip
    with record.locked(profile.name):
        nodes.down(profile.name)
    record.delete(profile.name)
    return Destroyed(True, names)


def plan(profile: Profile, machines: MachineSurvey, purge: bool) -> list[Action]:
    """Return the actions that destroy the cluster; with `purge`, they remove packages that deploy installed.

    A machine without a cluster, on which `status --fix` made changes, is only restored.
    """
    if machines.failures:
        lines = [str(error) for error in machines.failures.values()]
        raise PrerequisiteError(
            "\n".join(["not all machines can be reached, so nothing was changed:", *lines])
        )
    actions = []
    end = (_PURGE if purge else "") + f"rm -rf {STATE}\n"
    for node in profile.nodes:
        facts = machines.facts[node.name]
        marker = facts.values.get("marker")
        if not marker and "fixed" in facts.all("flag"):
            title = "undo the fixes of `status --fix`"
            actions.append(Action(node.name, RESTORE, title, _RESTORE + end, timeout_s=600))
        if marker != profile.name:
            continue
        undo = tuning.undo_script(tuning.EXPERIMENT_FOLDER) + tuning.undo_script()
        restore = node_link_scripts.RESTORE + undo + _RULES + _RESTORE + _CONTAINERD + end
        actions += [
            Action(node.name, STOP, "stop everything that runs in the cluster", _STOP, timeout_s=300),
            Action(
                node.name, RESTORE, "restore the state before the cluster", restore,
                needs=tuple((other.name, STOP) for other in profile.nodes), timeout_s=600,
            ),
        ]  # fmt: skip
    return actions


def apply_plan(
    profile: Profile,
    machines: MachineSurvey,
    actions: Sequence[Action],
    connections: Connections,
    observer: Observer,
) -> None:
    """Apply a plan. Between its two phases, remove what the network left on the nodes."""
    runner = Runner(connections, record.logs(profile.name), observer)
    runner.apply([action for action in actions if action.phase == STOP])
    names = [action.node for action in actions if action.phase == STOP]
    # The fact is `eth0 10.88.0.11/24`.
    entries = [entry for facts in machines.facts.values() for entry in facts.all("address")]
    addresses = [entry.split()[1].partition("/")[0] for entry in entries]
    pods = profile.kubernetes.pod_cidrs
    cleanups = connections.all(lambda host: remove_leftovers(host, addresses, pods), names)
    runner.apply([action for action in actions if action.phase != STOP])
    remaining = [
        f"{name}: {leftover}" for name, cleanup in cleanups.items() for leftover in cleanup.remaining
    ]
    if remaining:
        raise PrerequisiteError(
            "\n".join(["the cluster was destroyed, but leftovers of its network remain:", *remaining]),
            "remove them by hand, or reboot that machine",
        )
