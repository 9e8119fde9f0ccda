"""Import images into a node's containerd, and provide a network's images before a switch changes anything."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from k8sdds import versions
from k8sdds.bundle import Item
from k8sdds.deploy import software
from k8sdds.deploy.actions import LOCK
from k8sdds.deploy.network_install import RenderedNetwork
from k8sdds.deploy.scripts import shell
from k8sdds.model.profile import Profile
from k8sdds.system.errors import K8sddsError, PrerequisiteError
from k8sdds.system.ssh import Connections, Host, ScriptResult

IMPORT = "ctr --namespace k8s.io images import"
LIST = "ctr --namespace k8s.io images ls -q"
LIST_WITH_DIGESTS = "ctr --namespace k8s.io images ls | awk 'NR > 1 { print $1 \" \" $3 }'"
TIMEOUT_S = 600


def load(
    host: Host,
    archive: Path,
    images: Sequence[Item],
    shared: str = "",
    timeout_s: float = 900,
    foreign: bool = False,
) -> ScriptResult:
    """Import an OCI archive of this machine on a node. The command fails if one of its images is missing afterwards.

    The archive is sent, or is at `shared` on the node. `foreign`: the images are for another architecture than the
    node's.
    """
    command = f"{IMPORT} --all-platforms" if foreign else IMPORT
    script = f"set -e; exec 9<{LOCK}; flock 9; {command} {shlex.quote(shared or '-')} >/dev/null\n"
    script += f"images=$({LIST_WITH_DIGESTS})\n"
    for image in images:
        expected = shlex.quote(f"{image.name} sha256:{image.sha256}")
        failure = f"echo {expected} is missing after the import >&2; exit 1"
        script += f'echo "$images" | grep -qxF {expected} || {{\n  {failure}\n}}\n'
    if shared:
        return host.run(script, timeout_s=timeout_s)
    return host.send(archive, script, timeout_s=timeout_s)


def fetch_images(
    profile: Profile,
    install: RenderedNetwork,
    connections: Connections,
    nodes: Sequence[str],
    progress: Callable[[str], None],
) -> None:
    """Import a network's images from the bundle, or pull them, on every node.

    Without a network, a node may not be able to pull them, and the cluster would stay without a network.
    """
    progress(f"checking the images of {install.name}")
    command = f"uname -m; PATH=$PATH:/usr/local/bin {LIST}"

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
        lines += [shell("check_program", IMAGE=image, PROGRAM=program) for image, program in install.programs]
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
    """Import images, with the architecture by node, from the bundle; return by node those that it has."""
    try:
        bundle = software.for_profile(profile, [arch for arch, _ in missing.values()], progress)
    except K8sddsError as error:
        progress(f"{error.message}; {error.remedy}")
        return {}

    def import_missing(host: Host) -> set[str]:
        arch, names = missing[host.name]
        selected = [item for item in bundle.bundle.images(arch) if item.name in names]
        if not selected:
            return set()
        archive, on_node = bundle.archive(selected)
        done = load(host, archive, selected, on_node, TIMEOUT_S)
        if done.code:
            raise PrerequisiteError(f"{host.name}: {done.err.strip()}", "nothing was changed; retry")
        return {item.name for item in selected}

    return connections.all(import_missing, list(missing))
