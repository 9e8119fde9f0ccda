"""Identify the Debian release of this machine. Local nodes, images and bundles are built from the same release."""

from __future__ import annotations

import platform
from dataclasses import dataclass

from k8sdds.system.errors import PrerequisiteError


@dataclass(frozen=True)
class Release:
    """A Debian release that k8sdds supports, with the names of packages that differ between releases."""

    codename: str
    number: int
    dds_libraries: tuple[str, ...]
    """Shared libraries that perftest loads."""
    emulators: str
    """Package with statically linked emulators for user programs."""
    emulator_suffix: str
    """Suffix of their names: `-static` in /usr/bin/qemu-aarch64-static."""


RELEASES = {
    release.codename: release
    for release in (
        Release(
            "bookworm", 12, ("libddsc0debian", "libfastrtps2.9", "libtinyxml2-9"),
            "qemu-user-static", "-static",
        ),
        Release(
            "trixie", 13, ("libddsc0t64", "libfastdds3.1", "libtinyxml2-11"),
            "qemu-user", "",
        ),
    )
}  # fmt: skip


def os_release() -> dict[str, str]:
    """Return the keys of /etc/os-release. Empty if there is no such file."""
    try:
        return platform.freedesktop_os_release()
    except OSError:
        return {}


def codename() -> str:
    """Return the code name of this machine's distribution, such as bookworm. Empty if it is unknown."""
    return os_release().get("VERSION_CODENAME", "")


def running(purpose: str) -> Release:
    """Return the Debian release of this machine. `purpose` is what is built from it, in the plural."""
    facts = os_release()
    known = RELEASES.get(facts.get("VERSION_CODENAME", ""))
    if facts.get("ID") == "debian" and known is not None:
        return known
    name = facts.get("PRETTY_NAME") or "an unknown distribution"
    supported = " or ".join(str(release.number) for release in RELEASES.values())
    raise PrerequisiteError(
        f"{purpose} are built from the Debian release of this machine, which runs {name}",
        f"use a machine or a virtual machine with Debian {supported}; the lab also runs on other distributions",
    )
