"""Define which programs and images can be downloaded instead of built, and how they are verified. Pure data.

The projects publish the same versions that k8sdds builds from Go modules. `deploy/bundle/SHA256SUMS` pins their
checksums.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from k8sdds import versions
from k8sdds.bundle.contents import IMAGES, PROGRAMS
from k8sdds.system.errors import InputError
from k8sdds.system.paths import shared

VARIABLE = "K8SDDS_SOFTWARE_FROM"
"""Environment variable that selects where programs and images come from."""
AUTO, OFFICIAL, MODULES = "auto", "official", "modules"
"""Values of VARIABLE: official builds where they are available, else Go modules; only official builds; only modules."""


@dataclass(frozen=True)
class Download:
    """A file that a project publishes, and its checksum at the same address with `.sha256` appended."""

    url: str
    """Address, with `{arch}` for the architecture."""
    members: tuple[str, ...] = ()
    """Programs in the archive. Empty if the file is a program itself."""


@dataclass(frozen=True)
class Release:
    """Official builds that replace programs built from Go modules, or an image that k8sdds does not build."""

    name: str
    version: str
    programs: tuple[str, ...] = ()
    """Names of the programs in `contents.PROGRAMS` that it replaces."""
    downloads: tuple[Download, ...] = ()
    images: tuple[str, ...] = ()


def _release(name: str, programs: Sequence[str] = (), downloads: tuple[Download, ...] = ()) -> Release:
    """Return the release that replaces these programs, by default the one of its name, and their images."""
    replaced = tuple(programs or (name,))
    images = [image.name for image in IMAGES if {part.program for part in image.programs} & {*replaced}]
    return Release(name, PROGRAMS[replaced[0]].version, replaced, downloads, tuple(images))


_KUBERNETES = f"https://dl.k8s.io/release/v{versions.KUBERNETES}/bin/linux/{{arch}}"
_CNI = "https://github.com/containernetworking/plugins/releases/download/v{0}/cni-plugins-linux-{{arch}}-v{0}.tgz"
_CNI_PROGRAMS = ("bridge", "loopback", "macvlan", "host-local", "portmap")
RELEASES = (
    _release(
        "kubernetes",
        downloads=tuple(
            Download(f"{_KUBERNETES}/{program}") for program in ("kubeadm", "kubelet", "kubectl")
        ),
    ),
    *map(_release, ("etcd", "coredns", "pause", "metrics-server", "flanneld")),
    _release("cni-plugins", _CNI_PROGRAMS, (Download(_CNI.format(versions.CNI_PLUGINS), _CNI_PROGRAMS),)),
)


def selected_source() -> str:
    """Return where software comes from: AUTO, OFFICIAL or MODULES."""
    value = os.environ.get(VARIABLE) or AUTO
    if value not in (AUTO, OFFICIAL, MODULES):
        raise InputError(
            f"{VARIABLE}={value!r} is not a source of software", f"use {AUTO}, {OFFICIAL} or {MODULES}"
        )
    return value


def checksum_file() -> Path:
    """Return the path of the file with the pinned checksums."""
    return shared("deploy") / "bundle" / "SHA256SUMS"


def checksums() -> dict[str, str]:
    """Return the pinned SHA-256 checksums, by address of a file or reference of an image.

    The checksum of an image is that of its index of all architectures.
    """
    lines = checksum_file().read_text().splitlines()
    pairs = [line.split() for line in lines if line and not line.startswith("#")]
    return {name: digest for digest, name in pairs}
