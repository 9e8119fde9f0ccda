"""Unpack Debian packages for any architecture: base layers of images, and sysroots for cross compilers.

Nothing from the packages is executed, so no emulator is needed.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from k8sdds.bundle import cache, oci
from k8sdds.bundle.contents import Report
from k8sdds.system.debian_release import Release
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.faults import explained
from k8sdds.system.paths import cache_folder

TIMEOUT_S = 1800
NO_VARIABLES: Mapping[str, str] = MappingProxyType({})
SYSROOT_FOLDERS = ("lib", "usr/bin", "usr/include", "usr/lib")
"""Folders of a sysroot that compilers read or that programs are copied from."""


def archive(release: Release, arch: str, packages: Sequence[str], report: Report, of: str = "images") -> Path:
    """Return a tar file with packages `of` something and their dependencies, from the cache."""
    return _cached(
        "bases", ".tar", of, release.codename, arch, packages, report, lambda new, to: new.rename(to)
    )


def sysroot(release: Release, arch: str, packages: Sequence[str], report: Report) -> Path:
    """Return a folder that a cross compiler builds against, from the cache."""
    return _cached("sysroots", "", "compilers", release.codename, arch, packages, report, _unpack)


def program(release: Release, arch: str, package: str, name: str, report: Report) -> Path:
    """Return a program that a package has in /usr/bin, from the cache."""

    def take(packed: Path, path: Path) -> None:
        with tarfile.open(packed) as source:
            source.extract(f"./usr/bin/{name}", packed.parent)
        (packed.parent / "usr/bin" / name).rename(path)

    return _cached("emulators", "", name, release.codename, arch, [package], report, take)


def _cached(
    kind: str,
    suffix: str,
    of: str,
    suite: str,
    arch: str,
    packages: Sequence[str],
    report: Report,
    finish: Callable[[Path, Path], object],
) -> Path:
    key = hashlib.sha256(oci.canonical([suite, packages])).hexdigest()[:12]
    path = cache_folder() / kind / f"{suite}-{arch}-{key}{suffix}"
    with cache.creating(path, f"fetching Debian packages of {of} for {arch}", report) as missing:
        if missing:
            with tempfile.TemporaryDirectory(prefix=".new-", dir=path.parent) as folder:
                mode = "root" if os.geteuid() == 0 else "unshare"
                mmdebstrap(
                    f"fetch Debian packages for {arch}",
                    (f"--mode={mode}", "--variant=extract", f"--architectures={arch}"),
                    packages, suite, Path(folder, "base.tar"), path.with_name(f"{path.name}.log"),
                    {"SOURCE_DATE_EPOCH": "0"},
                )  # fmt: skip
                finish(Path(folder, "base.tar"), path)
    return path


def mmdebstrap(
    what: str,
    options: Sequence[str],
    packages: Sequence[str],
    suite: str,
    target: Path,
    log: Path,
    environment: Mapping[str, str] = NO_VARIABLES,
) -> None:
    """Run mmdebstrap, with its output in a log and temporary files next to the target."""
    argv = ["mmdebstrap", *options, f"--include={','.join(packages)}", suite, str(target)]
    variables = {**os.environ, "TMPDIR": str(target.parent), **environment}
    remedy = f"run: k8sdds setup --for deploy; see the log: {log}"
    with log.open("w") as output, explained(f"cannot {what}", remedy):
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, timeout=TIMEOUT_S,
            env=variables,
        )  # fmt: skip
    if done.returncode:
        errors = [line for line in log.read_text().splitlines() if line.startswith("E:")][-3:]
        raise PrerequisiteError(
            f"cannot {what}: {' '.join(errors) or 'mmdebstrap failed'}",
            f"check that apt-get update works on this machine; see the log: {log}",
        )


def _unpack(packed: Path, folder: Path) -> None:
    """Unpack the folders that a compiler needs; make absolute links, which leave the sysroot, relative."""
    unfinished = packed.with_name("root")
    with tarfile.open(packed) as source:
        members = []
        for member in source:
            member.name = member.name.removeprefix("./").rstrip("/")
            if not any(member.name == top or member.name.startswith(f"{top}/") for top in SYSROOT_FOLDERS):
                continue
            if member.issym() and member.linkname.startswith("/"):
                inside = posixpath.dirname(f"/{member.name}")
                member.linkname = posixpath.relpath(member.linkname, inside)
            if member.islnk():
                member.linkname = member.linkname.removeprefix("./")
            if member.isdir() or member.isfile() or member.issym() or member.islnk():
                member.mode |= 0o200
                members.append(member)
        source.extractall(unfinished, members)
    # The CMake files of some packages contain absolute paths.
    for path in unfinished.glob("usr/lib/*/cmake/*/*argets*.cmake"):
        path.write_text(path.read_text().replace('"/usr/', f'"{folder}/usr/'))
    unfinished.rename(folder)
