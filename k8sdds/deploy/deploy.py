"""Deploy a profile: connect, gather facts, check prerequisites, plan, apply, write the kubeconfig.

The plan ends with a smoke test, so after a successful deploy the cluster is known to work.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from k8sdds import versions
from k8sdds.bundle import cache, contents
from k8sdds.bundle.contents import HOST_ARCH
from k8sdds.deploy import (
    api_access,
    facts,
    fixes,
    local_nodes,
    network_install,
    preflight,
    profiles,
    record,
    running_campaigns,
    software,
    tuning,
)
from k8sdds.deploy.actions import Action
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.facts import Facts
from k8sdds.deploy.network_install import RenderedNetwork
from k8sdds.deploy.network_switch.switch import switch
from k8sdds.deploy.phases import objects, proxy, registry
from k8sdds.deploy.plan import FILES, SYSCTLS, plan
from k8sdds.deploy.runner import Observer, Runner
from k8sdds.deploy.software import Software
from k8sdds.model.profile import Profile
from k8sdds.nodes.rootfs import rootfs
from k8sdds.system.errors import InputError, K8sddsError, PrerequisiteError, Problem
from k8sdds.system.grouping import merge_by_node
from k8sdds.system.ssh import Connect, Connections

Note = Callable[[str], None]
REBOOT_QUESTION = "Enable the memory cgroup on the kernel command line of {}, and reboot?"


class Interface(Protocol):
    """Report to the user, and ask for confirmation."""

    def note(self, text: str) -> None:
        """Report a note, or the start of a step."""

    def confirm(self, question: str) -> None:
        """Ask the user to confirm; raises if the answer is no, or cannot be given."""

    def confirm_plan(self, actions: Sequence[Action], notes: Sequence[str]) -> None:
        """Show a plan and ask the user to confirm it; raises as `confirm` does."""

    def progress(self, actions: Sequence[Action]) -> contextlib.AbstractContextManager[Observer]:
        """Show the progress of a plan."""


@dataclass(frozen=True)
class DeployResult:
    """Result of a deploy."""

    actions: Sequence[Action]
    """The plan. Empty if nothing must be changed."""
    notes: Sequence[str] = ()
    node_count: int = 0
    software: str = ""
    """Where the cluster's software comes from, for messages."""
    missing: Mapping[str, int] = field(default_factory=dict)
    """Dry run only: steps that create software that is not in the cache, with their typical times. The changes of the
    machines cannot be planned without it."""


@dataclass(frozen=True)
class MachineSurvey:
    """Facts of a profile's machines, and whether the profile fits them."""

    facts: Mapping[str, Facts]
    failures: Mapping[str, K8sddsError] = field(default_factory=dict)
    """By machine without facts: why they could not be gathered."""
    problems: Sequence[Problem] = ()
    """What prevents a deploy."""
    notes: Sequence[str] = ()

    def raise_problems(self, profile: Profile) -> None:
        """Raise an error with everything that prevents a deploy, if anything does."""
        lines = [str(problem) for problem in (*self.failures.values(), *self.problems)]
        if not lines:
            return
        text = "\n".join([f"the profile {profile.name} does not fit its machines:", *lines])
        if self.failures or not all(problem.input for problem in self.problems):
            raise PrerequisiteError(text)
        raise InputError(text)


def deploy(
    profile: Profile,
    interface: Interface,
    *,
    limit: Sequence[str],
    allow_reboot: bool,
    dry_run: bool,
    force: bool,
    connect: Connect,
) -> DeployResult:
    """Build, complete or update the cluster of a profile.

    `limit` has the nodes to change, and is empty for all; other workers may be unreachable. `allow_reboot` lets
    machines reboot to enable the memory cgroup. `force` changes the cluster although a campaign is running on it. With
    `dry_run`, local nodes must exist already and nothing is changed, including the cache.
    """
    # The second check for campaigns does not repeat the notes of the first.
    note: Note = functools.cache(interface.note)
    with record.locked(profile.name):
        create_nodes = not machines_exist(profile)
        if create_nodes:
            note = _confirm_local_nodes(profile, force, interface.confirm, note)
        bundle = None if dry_run else create_machines(profile, note)
        note(f"connecting to {len(profile.nodes)} machines, and gathering facts")
        with connect(profiles.targets(profile)) as connections:

            def ask(confirm: Callable[[], None]) -> None:
                host = connections.hosts[profile.control_plane.name]
                running_campaigns.ask(partial(running_campaigns.refuse, host, force), note, confirm)

            part, machines = restrict(profile, survey(profile, connections), limit)
            may_reboot = allow_reboot and not dry_run
            if may_reboot and (names := machines_to_reboot(part, machines, limit)):
                ask(lambda: interface.confirm(REBOOT_QUESTION.format(", ".join(names))))
                enable_memory_cgroup(names, machines, connections, note)
                part, machines = restrict(profile, survey(profile, connections), limit)
            machines.raise_problems(profile)
            missing: dict[str, int] = {}
            with contextlib.ExitStack() as frozen:
                if dry_run:
                    missing = frozen.enter_context(cache.frozen())
                state = desired_state(part, machines.facts, bundle, note)
            if missing:
                return DeployResult((), machines.notes, len(part.nodes), missing=missing)
            state = replace(state, left_out=[node for node in profile.nodes if node not in part.nodes])
            actions = plan_within(state, limit)
            if actions and not dry_run:
                if not create_nodes:
                    ask(lambda: interface.confirm_plan(actions, machines.notes))
                for line in machines.notes:
                    note(line)
                with interface.progress(actions) as observer:
                    apply_plan(profile, state, actions, connections, observer)
            elif not dry_run:
                write_kubeconfig(profile, state.software, connections)
    return DeployResult(actions, machines.notes, len(part.nodes), state.software.origin)


def _confirm_local_nodes(profile: Profile, force: bool, confirm: Note, note: Note) -> Note:
    """Ask the user whether to create local nodes, and return `note` with the number of each step that follows."""
    refuse = partial(running_campaigns.refuse_on_local_nodes, profile, force)
    refuse(note)
    note = cache.planned(note, partial(_provide_local, profile))
    confirm(f"Create {len(profile.nodes)} local nodes and a cluster on them?")
    refuse(note)  # a campaign can start while the user is asked
    return note


def machines_exist(profile: Profile) -> bool:
    """Return whether the machines exist: local nodes may not have been created yet."""
    return profile.provider != "local" or local_nodes.all_running(profile)


def create_machines(profile: Profile, note: Note) -> Software | None:
    """Create missing local nodes and return the software that they share; None for other machines."""
    if profile.provider != "local":
        return None
    shared = software.for_profile(profile, (HOST_ARCH,), note)
    if not local_nodes.all_running(profile):
        software.check_network(shared, _network(profile), {HOST_ARCH: ()})
        local_nodes.create(profile, shared.bundle, note)
    return shared


def missing_software(profile: Profile, note: Note) -> dict[str, int]:
    """Return the steps that create what local nodes need and the cache does not have, with their typical times."""
    with cache.frozen() as missing:
        _provide_local(profile, note)
    return missing


def _provide_local(profile: Profile, note: Note) -> None:
    with contextlib.suppress(cache.NotCached):
        software.for_profile(profile, (HOST_ARCH,), note)
    rootfs(note)


def survey(profile: Profile, connections: Connections) -> MachineSurvey:
    """Gather the facts of all machines, and check whether the profile fits them. Makes no changes."""
    # Official builds have the programs under the names that are links to a built program.
    programs = sorted({path for item in contents.INSTALLS for path in (item.target, *item.links)})

    def extra_script(name: str) -> str:
        script = tuning.facts_script(profile.tuning, profile.network.interface)
        return script + (facts.CLUSTER if name == profile.control_plane.name else "")

    machines, failures = facts.gather(connections, SYSCTLS, (*FILES, *programs), extra_script)
    notes = [*preflight.notes(profile, machines)]
    for name, machine in machines.items():
        tuned = tuning.plan(profile.tuning, machine.all("tuning"))
        notes += [(name, note) for note in (*_outdated(profile, machine), *tuned.notes)]
    lines = merge_by_node(notes, len(profile.nodes))
    return MachineSurvey(machines, failures, preflight.check(profile, machines), lines)


def _outdated(profile: Profile, machine: Facts) -> Iterator[str]:
    """Yield which settings of the profile a machine of its cluster does not have yet, or still has."""
    if machine.values.get("marker") != profile.name:
        return
    for key, files in (("registry", registry.FILES), ("proxy", proxy.FILES)):
        is_set = getattr(profile, key) is not None
        if is_set != any(path in machine.pairs("file") for path in files):
            yield f"{key}: {'not configured yet' if is_set else 'still configured'}; run: k8sdds deploy"


def restrict(
    profile: Profile, machines: MachineSurvey, limit: Collection[str]
) -> tuple[Profile, MachineSurvey]:
    """Leave out workers outside `limit` that cannot be reached, do not fit, or have not joined; note each."""
    if not limit:
        return profile, machines
    reasons: dict[str, str] = {name: error.message for name, error in machines.failures.items()}
    for name, machine in machines.facts.items():
        alone = profile.model_copy(update={"nodes": [profile.node(name)]})
        problems = preflight.check(alone, {name: machine})
        if problems:
            reasons[name] = problems[0].what
        elif "joined" not in machine.all("flag"):
            reasons[name] = f"{name}: has not joined the cluster"
    out = {name for name in reasons if name not in limit and not profile.node(name).is_control_plane}
    part = profile.model_copy(update={"nodes": [node for node in profile.nodes if node.name not in out]})
    kept = {name: machine for name, machine in machines.facts.items() if name not in out}
    failures = {name: error for name, error in machines.failures.items() if name not in out}
    left_out = merge_by_node(
        ((name, reasons[name].removeprefix(f"{name}: ")) for name in sorted(out)), len(profile.nodes)
    )
    notes = [*machines.notes, *(f"left out because of --limit: {line}" for line in left_out)]
    return part, MachineSurvey(kept, failures, preflight.check(part, kept), notes)


def machines_to_reboot(profile: Profile, machines: MachineSurvey, limit: Collection[str] = ()) -> list[str]:
    """Return the machines whose memory cgroup a change of the kernel command line enables (Raspberry Pis)."""
    names = [
        name
        for name, machine in machines.facts.items()
        if fixes.lacks_memory_cgroup(machine) and (not limit or name in limit)
    ]
    if names:
        fixed = dict(machines.facts)
        for name in names:
            fixed[name] = replace(fixed[name], values={**fixed[name].values, "controllers": "memory"})
        problems = preflight.check(profile, fixed)
        replace(machines, problems=problems).raise_problems(profile)
    return names


def enable_memory_cgroup(
    names: Sequence[str], machines: MachineSurvey, connections: Connections, note: Note
) -> None:
    """Enable the memory cgroup on these machines, and return when all answer after their reboot."""
    note(f"enabling the memory cgroup and rebooting: {', '.join(names)}")
    scripts = {name: fixes.memory_cgroup_script(machines.facts[name]) for name in names}
    connections.all(lambda host: fixes.reboot(host, scripts[host.name]), names)


def desired_state(
    profile: Profile, machines: Mapping[str, Facts], bundle: Software | None, note: Note
) -> DesiredState:
    """Return the input of the plan. Creates the bundle if it is not in the cache, which takes minutes.

    `bundle` is the software that local nodes share. By default, it is selected for the machines' architectures. Raises
    NotCached in a block of `cache.frozen`.
    """
    if bundle is None:
        architectures = {machine.architecture for machine in machines.values()}
        architectures &= set(versions.BUNDLE_ARCHITECTURES)
        bundle = software.for_profile(profile, sorted(architectures), note)
    bundle = software.with_packages(bundle, machines.values(), note)
    install = _network(profile)
    # Images that all machines of an architecture have.
    present: dict[str, set[str]] = {}
    for machine in machines.values():
        images = machine.pairs("image")
        present.setdefault(machine.architecture, set(images)).intersection_update(images)
    software.check_network(bundle, install, present)
    return DesiredState(profile, machines, bundle, install, profiles.registry_login(profile))


def plan_within(state: DesiredState, limit: Collection[str] = ()) -> list[Action]:
    """Return the plan for the nodes in `limit`, or for all."""
    actions = plan(state, limit)
    if limit and state.control_plane not in limit and not state.cluster.up and actions:
        raise InputError(
            f"--limit leaves out {state.control_plane}, but its cluster does not exist yet",
            f"deploy it first: --limit {state.control_plane}, or all nodes",
        )
    return actions


def apply_plan(
    profile: Profile,
    state: DesiredState,
    actions: Sequence[Action],
    connections: Connections,
    observer: Observer,
) -> None:
    """Apply a plan, and write the kubeconfig even if only a part of the cluster could be built."""
    runner = Runner(connections, record.logs(profile.name), observer, state.software)

    def apply(action: Action) -> None:
        if objects.is_switch(action):
            switch(profile, profile.network, connections)
        else:
            runner.run(action)

    try:
        runner.apply(actions, apply)
    except K8sddsError:
        with contextlib.suppress(K8sddsError):
            write_kubeconfig(profile, state.software, connections)
        raise
    write_kubeconfig(profile, state.software, connections)


def write_kubeconfig(profile: Profile, software: Software, connections: Connections) -> None:
    """Write a kubeconfig that works on this machine, and the record of the cluster."""
    api_access.write_kubeconfig(profile, connections.hosts[profile.control_plane.name])
    data = {
        "profile": profile.model_dump(mode="json", exclude_defaults=True),
        "software": {"origin": software.origin, "downloads": software.downloads},
    }
    if (record.read(profile.name) or {}).items() >= data.items():
        return
    record.write(profile.name, **data)


def _network(profile: Profile) -> RenderedNetwork:
    return network_install.render(profile, profiles.password(profile))
