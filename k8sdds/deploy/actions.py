"""What a plan is made of: actions on machines, as data that can be printed, compared and applied."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from k8sdds.kubernetes import kubectl

if TYPE_CHECKING:
    from k8sdds.deploy.software import Images

STATE = "/etc/k8sdds"
"""Folder on every machine of a cluster: whose it is, and what was there before."""
HASHES = f"{STATE}/hashes"
"""What deploy has installed there: path, inode, size, both times, SHA-256."""
PRIVATE = "/run/k8sdds-deploy"
"""Folder on a machine for what is secret, while an action needs it; in memory, for root alone."""
IMAGES_BEFORE = f"{STATE}/images.before"
"""Images that containerd had for Kubernetes before the machine became part of the cluster."""
LOCK = "/run"
"""What a machine's changes lock, one at a time: a folder that every machine has."""

PRELUDE = f"""\
set -eu
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH LC_ALL=C KUBECONFIG={kubectl.KUBECONFIG} KUBECACHEDIR={kubectl.CACHE_FOLDER}
# What a command began that was killed goes on here: the next one waits for its end.
exec 9<{LOCK}
flock 9
# Remember what a path was before it is changed, so that destroy can give it back.
keep() {{
  grep -qxF "$1" {STATE}/made 2>/dev/null && return 0
  [ -e "{STATE}/saved$1" ] && return 0
  [ "$1" = / ] || [ -d "${{1%/*}}/" ] || keep "${{1%/*}}"
  if [ -d "$1" ] && [ ! -L "$1" ]; then return 0
  elif [ -e "$1" ] || [ -L "$1" ]; then mkdir -p "{STATE}/saved${{1%/*}}"; cp -a "$1" "{STATE}/saved$1"
  else mkdir -p {STATE}; echo "$1" >>{STATE}/made; fi
}}
# put PATH MODE: write stdin to a file, whole or not at all.
put() {{
  keep "$1"; mkdir -p "${{1%/*}}"
  ( umask 077; cat >"$1.k8sdds" ); chmod "$2" "$1.k8sdds"; mv -f "$1.k8sdds" "$1"
}}
"""
"""What every action's script can call."""

Step = tuple[str, str]
"""(node, phase)"""


@dataclass(frozen=True)
class Upload:
    """A file of this machine, or of a folder that the node shares with it, to be installed on a node."""

    source: Path
    target: str
    sha256: str
    size_bytes: int
    mode: str = "0755"
    shared: str = ""
    """Where the node sees it already; empty: it is sent over ssh."""


@dataclass(frozen=True)
class Private:
    """A secret that is a file of mode 0600 on the node while an action runs."""

    path: str
    """Without signs that mean something to a shell."""
    node: str = ""
    """Where a script gives it on its stdout, just before the action; else it is one that apply was given."""
    script: str = ""
    name: str = ""


@dataclass(frozen=True)
class Action:
    """One change of one machine. The script is run by `sh` as root, after PRELUDE."""

    node: str
    phase: str
    title: str
    script: str
    uploads: tuple[Upload, ...] = ()
    images: Images | None = None
    """Imported before the script runs."""
    private: tuple[Private, ...] = ()
    needs: tuple[Step, ...] = ()
    """Steps of other nodes that must have ended before."""
    timeout_s: float = 120
    remedy: str = ""
    """What to do where it fails, if more can be said than its output does."""


def file_script(path: str, text: str, mode: str = "0644") -> str:
    """The words that write a file; `text` ends with a newline."""
    mark = "END_OF_FILE"
    while mark in text:
        mark += "_"
    return f"put {shlex.quote(path)} {mode} <<'{mark}'\n{text}{mark}\n"
