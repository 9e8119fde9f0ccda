"""Import images from an OCI archive into a node's containerd."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from k8sdds.deploy.actions import LOCK
from k8sdds.system.ssh import Host, ScriptResult

IMPORT = "ctr --namespace k8s.io images import"
LIST = "ctr --namespace k8s.io images ls -q"
LIST_WITH_DIGESTS = "ctr --namespace k8s.io images ls | awk 'NR > 1 { print $1 \" \" $3 }'"


def load(
    host: Host,
    archive: Path,
    shared: str = "",
    timeout_s: float = 900,
    digests: Sequence[tuple[str, str]] = (),
    foreign: bool = False,
) -> ScriptResult:
    """Import an OCI archive of this machine on a node.

    Args:
        host: The node.
        archive: The archive on this machine.
        shared: Path of the archive on the node, if the node shares its folder; else it is sent.
        timeout_s: Timeout of the import.
        digests: Reference and SHA-256 of the manifest of each image that the node must have afterwards.
        foreign: Whether the images are for another architecture than the node's.

    Returns:
        The finished command, which fails if an image is missing afterwards.
    """
    command = f"{IMPORT} --all-platforms" if foreign else IMPORT
    script = f"set -e; exec 9<{LOCK}; flock 9; {command} {shlex.quote(shared or '-')} >/dev/null\n"
    script += _check_script(digests)
    if shared:
        return host.run(script, timeout_s=timeout_s)
    return host.send(archive, script, timeout_s=timeout_s)


def _check_script(digests: Sequence[tuple[str, str]]) -> str:
    if not digests:
        return ""
    lines = [f"images=$({LIST_WITH_DIGESTS})\n"]
    for name, digest in digests:
        expected = shlex.quote(f"{name} sha256:{digest}")
        failure = f"echo {expected} is missing after the import >&2; exit 1"
        lines.append(f'echo "$images" | grep -qxF {expected} || {{\n  {failure}\n}}\n')
    return "".join(lines)
