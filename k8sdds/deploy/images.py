"""Images from an archive into a node's containerd."""

from __future__ import annotations

import shlex
from pathlib import Path

from k8sdds.deploy.actions import LOCK, STATE
from k8sdds.hosts import Done, Host

IMPORT = "ctr --namespace k8s.io images import"
# So that destroy can tell which images came with us.
_LIST = "ctr --namespace k8s.io images ls -q | grep -v '^sha256:' | sort"
_REMEMBER = f"exec 9<{LOCK}; flock 9; mkdir -p {STATE}; {_LIST} >{STATE}/images.before;"
_DIFFERENCE = f"{_LIST} | comm -13 {STATE}/images.before - >>{STATE}/images; rm {STATE}/images.before"


def load(host: Host, archive: Path, shared: str = "", timeout_s: float = 900) -> Done:
    """Import an OCI archive of this machine on a node; `shared`: where the node sees it already."""
    if shared:
        return host.run(
            f"set -e\n{_REMEMBER}\n{IMPORT} {shlex.quote(shared)} >/dev/null\n{_DIFFERENCE}\n",
            timeout_s=timeout_s,
        )
    script = f"set -e; {_REMEMBER} {IMPORT} - >/dev/null; {_DIFFERENCE}"
    return host.send(archive, script, timeout_s=timeout_s)
