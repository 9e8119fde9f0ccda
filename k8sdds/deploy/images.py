"""Images from an archive into a node's containerd."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from k8sdds.deploy.actions import LOCK
from k8sdds.system.ssh import Done, Host

IMPORT = "ctr --namespace k8s.io images import"
WITH_DIGESTS = "ctr --namespace k8s.io images ls | awk 'NR > 1 { print $1 \" \" $3 }'"


def load(
    host: Host,
    archive: Path,
    shared: str = "",
    timeout_s: float = 900,
    digests: Sequence[tuple[str, str]] = (),
    foreign: bool = False,
) -> Done:
    """Import an OCI archive of this machine on a node; `shared`: where the node sees it already.

    `digests`: (reference, SHA-256 of its manifest) that the node must have afterwards, else it fails.
    `foreign`: the images are for another architecture than the node's.
    """
    words = f"{IMPORT} --all-platforms" if foreign else IMPORT
    script = f"set -e; exec 9<{LOCK}; flock 9; {words} {shlex.quote(shared or '-')} >/dev/null\n"
    script += _check(digests)
    if shared:
        return host.run(script, timeout_s=timeout_s)
    return host.send(archive, script, timeout_s=timeout_s)


def _check(digests: Sequence[tuple[str, str]]) -> str:
    """Words that fail where an image is not the one of the bundle."""
    if not digests:
        return ""
    lines = [f"found=$({WITH_DIGESTS})\n"]
    for name, digest in digests:
        wanted = shlex.quote(f"{name} sha256:{digest}")
        missing = f"echo {wanted} did not arrive >&2; exit 1"
        lines.append(f'echo "$found" | grep -qxF {wanted} || {{\n  {missing}\n}}\n')
    return "".join(lines)
