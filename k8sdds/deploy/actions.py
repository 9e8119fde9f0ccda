"""Define what a plan consists of: actions on machines, as data that can be printed, compared and applied."""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from k8sdds.bundle import Item
from k8sdds.deploy.scripts import shell

KUBECONFIG = "/etc/kubernetes/admin.conf"
"""The administrator's kubeconfig on the control plane."""
CACHE_FOLDER = "/run/k8sdds-kubectl"
"""Where kubectl caches API discovery on a machine: in memory, instead of in root's home."""
STATE = "/etc/k8sdds"
"""Folder on every machine of a cluster: the cluster's name, and what was on the machine before."""
FIXED = f"{STATE}/fixed"
"""File on a machine that `status --fix` changed, even if the machine does not belong to a cluster."""
HASHES = f"{STATE}/hashes"
"""Installed files on a machine: path, inode, size, both times, SHA-256."""
PRIVATE = "/run/k8sdds-deploy"
"""Folder on a machine for the secrets of a running action: in memory, readable by root only."""
IMAGES_BEFORE = f"{STATE}/images.before"
"""List of the images in containerd's namespace k8s.io before the machine joined the cluster."""
LOCK = "/run"
"""Folder that a script locks while it changes a machine, so that changes are made one at a time."""

PRELUDE = shell("prelude", CACHE_FOLDER=CACHE_FOLDER, KUBECONFIG=KUBECONFIG, LOCK=LOCK, STATE=STATE)
"""Shell functions that every action's script can call."""

Step = tuple[str, str]
"""A node and a phase: all actions of that phase on that node."""


@dataclass(frozen=True)
class Upload:
    """A file to install on a node, from this machine or from a folder that the node shares with it."""

    source: Path
    target: str
    sha256: str
    size_bytes: int
    mode: str = "0755"
    shared: str = ""
    """Path of the file on the node. Empty if it is sent over SSH."""


@dataclass(frozen=True)
class PrivateFile:
    """A secret in a file of mode 0600 that exists on the node while an action runs.

    Its content is either given, or printed by a script on another node just before the action.
    """

    path: str
    """Path of the file, without characters that are special to a shell."""
    content: str = field(default="", repr=False)
    node: str = ""
    """The node that the script runs on. Empty if the content is given."""
    script: str = ""
    valid_s: int = 0
    """For how long what the script prints can be used; longer than an action that uses it may take."""


@dataclass(frozen=True)
class Action:
    """One change of one machine. `sh` runs the script as root, after PRELUDE."""

    node: str
    phase: str
    title: str
    script: str
    uploads: tuple[Upload, ...] = ()
    images: tuple[Item, ...] = ()
    """Images of one architecture in the bundle, to import before the script runs."""
    private: tuple[PrivateFile, ...] = ()
    needs: tuple[Step, ...] = ()
    """Steps on other nodes that must be complete before the action."""
    timeout_s: float = 120
    remedy: str = ""
    """Instruction for when the action fails, in addition to its output."""


def file_script(path: str, text: str, mode: str = "0644") -> str:
    """Return a shell script that writes a file. `text` must end with a newline."""
    return f"put {shlex.quote(path)} {mode} {here_document(text)}"


def here_document(text: str) -> str:
    """Return a text as the redirected input of a shell command. It must end with a newline."""
    delimiter = "END_OF_FILE"
    while delimiter in text:
        delimiter += "_"
    return f"<<'{delimiter}'\n{text}{delimiter}\n"


def sha256(text: str) -> str:
    """Return the SHA-256 of the content of a file."""
    return hashlib.sha256(text.encode()).hexdigest()
