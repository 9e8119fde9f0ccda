"""Which files of a run folder are packed, and which must never leave the machine."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from k8sdds.results.run_folder import CAMPAIGN, EVENTS, EXPERIMENT, TRIALS

RECORDS = (CAMPAIGN, EXPERIMENT, TRIALS, EVENTS)
"""What a run folder is made of besides its raw files: without one of these a copy would be another run."""

MADE_AGAIN = ("derived", "report")
"""Folders that `k8sdds report` makes from the rest. Not packed: the evaluator makes them."""

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


def listed(folder: Path) -> Iterator[tuple[str, Path, str | None]]:
    """(path within the folder, file, why it is left out or None) of everything to be considered, sorted.

    Symbolic links are never followed: they could lead to anything on this machine.
    """
    for path in _walk(folder):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            yield name, path, "a symbolic link"
        elif not path.is_file():
            yield name, path, "neither a file nor a folder"
        elif _SECRET_NAMES.search(PurePosixPath(name).name):
            yield name, path, "its name says that it holds a secret"
        else:
            yield name, path, None


def _walk(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        here = Path(parent)
        if here == folder:
            folders[:] = [name for name in folders if name not in MADE_AGAIN]
        folders.sort()
        links = [name for name in folders if (here / name).is_symlink()]
        yield from (here / name for name in sorted([*files, *links]))


def secret_in(content: bytes) -> str | None:
    """What secret a file's content holds, in words, or None."""
    return next((words for words, pattern in _SECRET_TEXTS.items() if pattern.search(content)), None)
