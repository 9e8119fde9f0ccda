"""Run programs of an image in network namespaces of a virtual machine, without a container runtime."""

from __future__ import annotations

import tarfile
from pathlib import Path

from k8sdds.bundle import Bundle, oci
from k8sdds.bundle.contents import HOST_ARCH

# `ip netns exec` has made a mount namespace of its own.
ENTER = (
    "mount -t proc proc $0/proc && mount -t sysfs sys $0/sys && mount --rbind /dev $0/dev"
    ' && mount --rbind /run $0/run && mount -t tmpfs tmp $0/tmp && exec chroot "$0" "$@"'
)


def unpack(created: Bundle, name: str, folder: Path) -> None:
    """Unpack the layers of an image, and create the folders that a container runtime provides."""
    (item,) = (item for item in created.images(HOST_ARCH) if item.name == name)
    manifest = oci.manifest(created.file(item))
    for layer in oci.parts(manifest)[1:]:
        with tarfile.open(created.folder / "oci/blobs/sha256" / layer) as archive:
            archive.extractall(folder)
    for inside in ("dev", "proc", "run", "sys", "tmp", "opt/cni/bin"):
        (folder / inside).mkdir(parents=True, exist_ok=True)


def command(root: str, netns: str, *argv: str) -> list[str]:
    """Return the command that runs a program of an unpacked image in a network namespace."""
    return ["ip", "netns", "exec", netns, "sh", "-c", ENTER, root, *argv]
