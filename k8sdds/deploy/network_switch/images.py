"""Provide a network's images on all nodes before a switch changes anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from k8sdds import versions
from k8sdds.deploy import images, software
from k8sdds.deploy.network_install import RenderedNetwork
from k8sdds.model.profile import Profile
from k8sdds.system.errors import K8sddsError, PrerequisiteError
from k8sdds.system.ssh import Connections, Host, ScriptResult

TIMEOUT_S = 600


def fetch_images(
    profile: Profile,
    install: RenderedNetwork,
    connections: Connections,
    nodes: Sequence[str],
    progress: Callable[[str], None],
) -> None:
    """Import a network's images from the bundle, or pull them, on every node.

    Without a network, a node may not be able to pull them, and the cluster would stay without a network.

    Raises:
        PrerequisiteError: A node cannot get an image.
    """
    progress(f"checking the images of {install.name}")
    command = f"uname -m; PATH=$PATH:/usr/local/bin {images.LIST}"

    def find_missing(host: Host) -> tuple[str, set[str]]:
        machine, *present = host.run(command).out.split()
        return versions.ARCHITECTURE_OF_MACHINE.get(machine, machine), set(install.images) - set(present)

    missing = connections.all(find_missing, nodes)
    imported: Mapping[str, set[str]] = {}
    if profile.software.source == "bundle" and any(names for _, names in missing.values()):
        imported = _import_images(profile, missing, connections, progress)
    pulled = {name: names - imported.get(name, set()) for name, (_, names) in missing.items()}

    def fetch(host: Host) -> ScriptResult:
        lines = [
            f"ctr -n k8s.io images pull {image} >/dev/null || {{ echo cannot get {image} >&2; exit 1; }}\n"
            for image in sorted(pulled[host.name])
        ]
        lines += [_program_check(image, program) for image, program in install.programs]
        done = host.run("".join(["PATH=$PATH:/usr/local/bin\n", *lines]), timeout_s=TIMEOUT_S)
        if done.code:
            errors = done.err.strip().splitlines()[-2:]
            raise PrerequisiteError(
                "\n".join([f"{host.name}: cannot run {install.name}:", *errors]),
                "nothing was changed. Check that the machine reaches the registry;"
                f" `k8sdds deploy {profile.name}` installs images of k8sdds.local",
            )
        return done

    incomplete = [name for name in nodes if pulled[name] or install.programs]
    if incomplete:
        connections.all(fetch, incomplete)


def _import_images(
    profile: Profile,
    missing: Mapping[str, tuple[str, set[str]]],
    connections: Connections,
    progress: Callable[[str], None],
) -> dict[str, set[str]]:
    """Import images from the bundle, and return by node those that the bundle has.

    Args:
        profile: The profile.
        missing: Architecture and missing images by node.
        connections: Connections to the nodes.
        progress: Receives one line about each step.
    """
    try:
        bundle = software.for_profile(profile, [arch for arch, _ in missing.values()], progress)
    except K8sddsError as error:
        progress(f"{error.message}; {error.remedy}")
        return {}

    def load(host: Host) -> set[str]:
        arch, names = missing[host.name]
        selected = bundle.selected_images(arch, names)
        if not selected.digests:
            return set()
        archive = bundle.archive(selected)
        done = images.load(host, archive.source, archive.shared, TIMEOUT_S, selected.digests)
        if done.code:
            raise PrerequisiteError(f"{host.name}: {done.err.strip()}", "nothing was changed; retry")
        return {name for name, _ in selected.digests}

    return connections.all(load, list(missing))


def _program_check(image: str, program: str) -> str:
    """Return shell commands that fail if an image on a node does not contain a program."""
    return f"""\
work=$(mktemp -d)
ctr -n k8s.io images mount {image} $work >/dev/null && found=$(find $work -name {program} | head -n 1)
ctr -n k8s.io images unmount --rm $work >/dev/null
rmdir $work
[ -n "$found" ] || {{ echo {image} has no {program} >&2; exit 1; }}
"""
