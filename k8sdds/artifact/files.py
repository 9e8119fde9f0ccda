"""Select the files of a run folder to pack, and detect secrets that must not be published."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

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
_SECRET_TEXTS = {
    "a private key": re.compile(rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----"),
    "a WireGuard key": re.compile(rb"(?m)^\s*(PrivateKey|PresharedKey)\s*=\s*[A-Za-z0-9+/]{43}="),
    "an IPsec pre-shared key": re.compile(rb"(?m)^[^#\n]*:\s*PSK\s+(\"|0[sx])"),
    "the key of a kubeconfig": re.compile(rb"client-key-data\s*\"?:\s*\"?[A-Za-z0-9+/]{16}"),
    "a token": re.compile(rb"eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"),
}


def candidates(folder: Path) -> Iterator[tuple[str, Path, str | None]]:
    """Yield (path within the folder, file, reason to exclude it or None) of all candidates, sorted.

    Symbolic links are never followed, because they may lead to any file of this machine.
    """
    for path in _walk(folder):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            yield name, path, "a symbolic link"
        elif not path.is_file():
            yield name, path, "neither a file nor a folder"
        elif _SECRET_NAMES.search(PurePosixPath(name).name):
            yield name, path, "its name suggests that it contains a secret"
        else:
            yield name, path, None


def _walk(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        if Path(parent) == folder:
            folders[:] = [name for name in folders if name not in DERIVED]
        folders.sort()
        links = [name for name in folders if (Path(parent) / name).is_symlink()]
        yield from (Path(parent) / name for name in sorted([*files, *links]))


def secret_in(content: bytes) -> str | None:
    """Return a description of the secret in a file's content, or None."""
    return next(
        (description for description, pattern in _SECRET_TEXTS.items() if pattern.search(content)), None
    )
