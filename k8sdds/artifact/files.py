"""Select the files of a run folder to pack."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

from k8sdds.artifact import zip_format
from k8sdds.results.run_folder import CAMPAIGN, EVENTS, EXPERIMENT, TRIALS

RECORDS = (CAMPAIGN, EXPERIMENT, TRIALS, EVENTS)
"""The essential files of a run folder. If one of them cannot be packed, the folder cannot be packed."""

DERIVED = ("derived", "report")
"""Folders that `k8sdds report` derives from the other files. They are not packed; evaluators can derive them again."""

_SECRET_NAMES = re.compile(
    r"(^|[._-])(id_(rsa|dsa|ecdsa|ed25519)|kubeconfig|psk)($|[._-])|\.(key|p12|pfx|jks|kdbx|psk)$"
    r"|[._-]key\.(pem|der)$|^(swanctl|ipsec)\.secrets$|^rti_license\.dat$",
    re.IGNORECASE,
)


def exclusion(name: str, path: Path) -> str | None:
    """Return why a file, given by its path within the run folder, cannot be packed, or None.

    Symbolic links are never followed, because they may lead to any file of this machine.
    """
    state = path.lstat()
    if stat.S_ISLNK(state.st_mode):
        return "it is a symbolic link"
    if not stat.S_ISREG(state.st_mode):
        return "it is neither a file nor a folder"
    if _SECRET_NAMES.search(name.rpartition("/")[2]):
        return "its name suggests that it contains a secret"
    if state.st_size > zip_format.MAX_FILE_BYTES:
        return f"it is larger than {zip_format.MAX_FILE_BYTES >> 30} GiB"
    return zip_format.name_problem(name)


def walk(folder: Path, without: Collection[str] = ()) -> Iterator[str]:
    """Yield the path of each file and link in a folder, except in some of its folders, sorted by folder."""
    for parent, folders, files in os.walk(str(folder), onerror=_raise):
        inside = parent[len(str(folder)) :].strip("/")
        folders[:] = sorted(name for name in folders if inside or name not in without)
        links = [name for name in folders if os.path.islink(os.path.join(parent, name))]
        for name in sorted([*files, *links]):
            yield f"{inside}/{name}" if inside else name


def _raise(error: OSError) -> None:
    raise error
