"""Deploy from beginning to end: machines → facts → judged → plan → applied → reached from here."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from k8sdds import versions
from k8sdds.bundle import recipe
from k8sdds.bundle.create import ARCH_HERE
from k8sdds.deploy import (
    api_access,
    boot_command_line,
    facts,
    local_nodes,
    network_install,
    preflight,
    profiles,
    record,
    software,
    tuning,
)
from k8sdds.deploy.actions import Action
from k8sdds.deploy.apply import Observer, apply
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.facts import Facts, probe
from k8sdds.deploy.network_install import Install
from k8sdds.deploy.network_switch import switch as switching
from k8sdds.deploy.phases import join, metrics_server, network, smoke_test
from k8sdds.deploy.phases.objects import secret_objects
from k8sdds.deploy.plan import FILES, SYSCTLS, plan
from k8sdds.deploy.software import Software
from k8sdds.kubernetes import apply as kube
from k8sdds.model.profile import Profile
from k8sdds.system.errors import InputError, K8sddsError, PrerequisiteError, Problem
from k8sdds.system.ssh import Connections

Said = Callable[[str], None]


@dataclass(frozen=True)
class MachineSurvey:
    """A profile's machines as they are."""

    facts: Mapping[str, Facts]
    failures: Mapping[str, K8sddsError]
    problems: Sequence[Problem]
    notes: Sequence[str]

    def refuse(self, profile: Profile) -> None:
        """Raise what prevents a deploy, if anything does."""
        lines = [str(error) for error in self.failures.values()] + [str(one) for one in self.problems]
        if not lines:
            return
        text = "\n".join([f"the profile {profile.name} does not fit its machines as they are:", *lines])
        if self.failures or not all(problem.input for problem in self.problems):
            raise PrerequisiteError(text)
        raise InputError(text)


def look(profile: Profile, connections: Connections) -> MachineSurvey:
    """The facts of all machines, and whether the profile fits them. Changes nothing."""
    binaries = {item.target for item in recipe.INSTALLS}

    def extra(name: str) -> str:
        more = tuning.facts_script(profile.tuning, profile.network.interface)
        return more + (probe.CLUSTER if name == profile.control_plane.name else "")

    seen, failures = facts.gather(connections, SYSCTLS, (*FILES, *sorted(binaries)), extra)
    notes = preflight.notes(profile, seen)
    for name, found in seen.items():
        notes += [f"{name}: {note}" for note in tuning.plan(profile.tuning, found.all("tuning")).notes]
    return MachineSurvey(seen, failures, preflight.judge(profile, seen), notes)


def within(profile: Profile, seen: MachineSurvey, limit: Collection[str]) -> tuple[Profile, MachineSurvey]:
    """The profile and what was seen, without those workers outside `limit` that cannot be reached or do not
    fit: this is told in the notes, and they are left out. Without a limit, all must do."""
    if not limit:
        return profile, seen
    why: dict[str, str] = {name: error.message for name, error in seen.failures.items()}
    for name, found in seen.facts.items():
        alone = profile.model_copy(update={"nodes": [profile.node(name)]})
        problems = preflight.judge(alone, {name: found})
        if problems:
            why[name] = problems[0].what
    out = {name for name in why if name not in limit and not profile.node(name).is_control_plane}
    kept = profile.model_copy(update={"nodes": [node for node in profile.nodes if node.name not in out]})
    facts = {name: found for name, found in seen.facts.items() if name not in out}
    failures = {name: error for name, error in seen.failures.items() if name not in out}
    notes = [*seen.notes, *(f"left out, as --limit allows: {why[name]}" for name in sorted(out))]
    return kept, MachineSurvey(facts, failures, preflight.judge(kept, facts), notes)


def machines_stand(profile: Profile) -> bool:
    """Whether there are machines to look at: local nodes may not have been made yet."""
    return profile.provider != "local" or local_nodes.complete(profile)


def make_machines(profile: Profile, said: Said) -> Software | None:
    """For local nodes: have them stand, with the software they share. Others are there already."""
    if profile.provider != "local":
        return None
    found = software.of(profile, (ARCH_HERE,), said)
    if not local_nodes.complete(profile):
        software.refuse(found, _network(profile), {ARCH_HERE: ()})
        local_nodes.make(profile, found.bundle, said)
    return found


def boot_lines(profile: Profile, found: MachineSurvey, limit: Collection[str] = ()) -> list[str]:
    """The machines whose memory cgroup is off while their boot line is a file (Raspberry Pis).

    Raises what else prevents a deploy: nobody's machine is rebooted in vain.
    """
    chosen = [
        name
        for name, one in found.facts.items()
        if boot_command_line.needed(one) and (not limit or name in limit)
    ]
    if chosen:
        after = {**found.facts, **{name: boot_command_line.enabled(found.facts[name]) for name in chosen}}
        replace(found, problems=preflight.judge(profile, after)).refuse(profile)
    return chosen


def reboot(names: Sequence[str], found: MachineSurvey, connections: Connections, said: Said) -> None:
    """Turn the memory cgroup on by the boot line of these machines; return when all answer again.

    Raises PrerequisiteError where one does not.
    """
    for name in names:
        said(f"{name}: turning the memory cgroup on, and rebooting")
    scripts = {name: boot_command_line.script(found.facts[name]) for name in names}
    connections.all(lambda host: boot_command_line.reboot(host, scripts[host.name]), names)


def wanted(profile: Profile, seen: Mapping[str, Facts], found: Software | None, said: Said) -> DesiredState:
    """What to plan from. Makes what bundle is missing, which takes long the first time.

    Raises InputError where the bundle has not what the profile wants.
    """
    if found is None:
        arches = {facts.architecture for facts in seen.values()} & set(versions.BUNDLE_ARCHITECTURES)
        found = software.of(profile, sorted(arches), said)
    found = software.with_packages(found, seen.values(), said)
    install = _network(profile)
    there: dict[str, set[str]] = {}
    for one in seen.values():
        there.setdefault(one.architecture, set(one.pairs("image"))).intersection_update(one.pairs("image"))
    software.refuse(found, install, there)
    return DesiredState(profile, seen, found, install)


def _network(profile: Profile) -> Install:
    return network_install.install(profile, profiles.password(profile))


def carry_out(
    profile: Profile,
    state: DesiredState,
    actions: Sequence[Action],
    connections: Connections,
    observer: Observer,
) -> None:
    """Apply a plan, and have the profile's cluster reached from here: also where only a part of it stands."""
    stamped = kube.stamped(state.network.manifests, state.network.name)
    secrets = {network.PHASE: secret_objects(stamped, state.network.secrets)}
    folder = record.logs(profile.name)
    switched = [one for one in actions if one.phase == network.PHASE and network.replaces(state)]
    # What waits for the network, or proves it; on the control plane `join` is to wait for the others.
    waiting = (join.PHASE, smoke_test.PHASE, metrics_server.PHASE)
    last = [one for one in actions if switched and one.node == state.head and one.phase in waiting]
    first = [one for one in actions if one not in switched + last]
    try:
        apply(first, connections, folder, observer, state.software, secrets)
        for action in switched:
            _switch(profile, action, connections, observer)
        apply(last, connections, folder, observer, state.software, secrets)
    except K8sddsError:
        with contextlib.suppress(K8sddsError):
            reachable(profile, connections)
        raise
    reachable(profile, connections)


def _switch(profile: Profile, action: Action, connections: Connections, observer: Observer) -> None:
    """Replace the network, as one action of the plan."""
    observer.started(action)
    began = time.monotonic()
    error: Exception | None = None
    try:
        switching.switch(profile, profile.network, connections)
    except K8sddsError as found:
        error = found
        raise
    finally:
        observer.ended(action, time.monotonic() - began, error)


def reachable(profile: Profile, connections: Connections) -> None:
    """Have a kubeconfig here that works, and the record of the cluster."""
    api_access.fetch(profile, connections.hosts[profile.control_plane.name])
    data = profile.model_dump(mode="json", exclude_defaults=True)
    if (record.read(profile.name) or {}).get("profile") != data:
        record.write(profile.name, profile=data)


def planned(state: DesiredState, limit: Collection[str] = ()) -> list[Action]:
    """The plan; InputError where `limit` leaves out what its nodes need first."""
    actions = plan(state, limit)
    if limit and state.head not in limit and not state.cluster.up and actions:
        raise InputError(
            f"--limit leaves out {state.head}, but its cluster does not stand yet",
            f"deploy it first: --limit {state.head}, or all nodes",
        )
    return actions
