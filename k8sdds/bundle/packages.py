"""Fetch the Debian packages of a bundle for any suite and architecture, and write their index.

apt runs with separate folders: it installs nothing and does not change this machine's package lists.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from k8sdds.bundle import cache, oci
from k8sdds.bundle.contents import Report
from k8sdds.system import debian_release, programs
from k8sdds.system.errors import InputError, PrerequisiteError
from k8sdds.system.paths import cache_folder

NODE_PACKAGES = (
    "conntrack", "containerd", "ebtables", "ethtool", "iproute2", "ipset", "iptables", "kmod", "nftables",
    "runc", "socat",
)  # fmt: skip
"""Packages that a node needs in addition to those that every installation includes."""
INDEX = "Packages"
TIMEOUT_S = 900
SUITE = re.compile(r"[a-z][a-z0-9-]{1,30}")


def check_suite(suite: str) -> None:
    """Check the code name of a distribution."""
    if not SUITE.fullmatch(suite):
        raise InputError(
            f"{suite!r} is not the name of a suite", "use a code name such as bookworm, trixie or noble"
        )


def fetch(folder: Path, suite: str, arch: str, sources: Path | None = None) -> Path:
    """Fetch NODE_PACKAGES and their dependencies into a new folder and write the index.

    `sources` is a file with apt sources. None means this machine's, with its code name replaced by `suite`.
    """
    check_suite(suite)
    if sources is not None and not sources.is_file():
        raise InputError(
            f"there is no file {sources}", "give a file with apt sources, as in /etc/apt/sources.list"
        )
    with tempfile.TemporaryDirectory() as temporary:
        apt = _Apt(Path(temporary), arch)
        apt.write_sources(suite, sources)
        apt.run("update", "-q=2")
        apt.run("install", "-q=2", "--yes", "--no-install-recommends", "--download-only", *NODE_PACKAGES)
        archives = sorted((Path(temporary) / "cache/archives").glob("*.deb"))
        folder.mkdir(parents=True)
        files = []
        for archive in archives:
            # apt encodes the colon of an epoch as %3a, which some copy programs change.
            files.append(folder / archive.name.replace("%3a", "-"))
            shutil.move(archive, files[-1])
    (folder / INDEX).write_text("\n".join(_stanza(path) for path in files))
    return folder


def cached(suite: str, arch: str, report: Report) -> Path:
    """Return a folder with NODE_PACKAGES, their dependencies and index. They are fetched at most once per day."""
    check_suite(suite)
    key = hashlib.sha256(oci.canonical(NODE_PACKAGES)).hexdigest()[:8]
    today = datetime.now(UTC).strftime("%Y%m%d")
    folder = cache_folder() / "packages" / f"{suite}-{arch}-{today}{key}"
    step = f"fetching packages of {suite} for {arch}"
    return cache.folder(folder, step, report, lambda unfinished: fetch(unfinished, suite, arch))


class _Apt:
    """apt for any suite and architecture, with its state in a temporary folder."""

    def __init__(self, folder: Path, arch: str) -> None:
        self.folder = folder
        for name in ("state/lists/partial", "cache/archives/partial", "etc/sources.list.d"):
            (folder / name).mkdir(parents=True)
        # An empty list of installed packages, so that apt fetches all dependencies.
        (folder / "status").touch()
        (folder / "apt.conf").write_text(
            f'APT::Architecture "{arch}";\nAPT::Architectures {{ "{arch}"; }};\n'
            f'Dir::State "{folder}/state";\nDir::State::status "{folder}/status";\n'
            f'Dir::Cache "{folder}/cache";\nDir::Etc::SourceList "{folder}/etc/sources.list";\n'
            f'Dir::Etc::SourceParts "{folder}/etc/sources.list.d";\n'
            'APT::Sandbox::User "root";\nAcquire::Languages "none";\nAcquire::Retries "3";\n'
            # This machine's apt hooks concern only its own folders.
            "#clear DPkg::Post-Invoke;\n#clear APT::Update::Post-Invoke;\n"
            "#clear APT::Update::Post-Invoke-Success;\n"
        )

    def write_sources(self, suite: str, sources: Path | None) -> None:
        """Write apt's sources: those in a file, or this machine's sources adapted to the suite."""
        if sources is not None:
            name = "own.sources" if sources.suffix == ".sources" else "own.list"
            shutil.copyfile(sources, self.folder / "etc/sources.list.d" / name)
            return
        codename = debian_release.codename()
        paths = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
        number = 0
        for path in paths:
            if path.suffix not in (".list", ".sources") or not path.is_file():
                continue
            for text in distribution_entries(path.read_text(), path.suffix == ".sources", codename):
                number += 1
                target = self.folder / "etc/sources.list.d" / f"{number}{path.suffix}"
                target.write_text(re.sub(rf"\b{re.escape(codename)}\b", suite, text) + "\n")
        if not number:
            raise PrerequisiteError(
                "this machine's apt sources contain no entry of its distribution",
                "give apt sources with --apt-sources FILE",
            )

    def run(self, *args: str) -> None:
        """Run apt-get."""
        # apt reads the file before this machine's settings, to set the architecture, and again after them, to
        # override them.
        own = str(self.folder / "apt.conf")
        environment = {**os.environ, "APT_CONFIG": own, "LC_ALL": "C"}
        remedy = "run this command on a Debian-based machine, with apt sources that answer"
        argv = ["apt-get", "-c", own, *args]
        done = programs.run(argv, f"run apt-get {args[0]}", TIMEOUT_S, remedy, environment, self.folder)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.startswith("E:")]
            raise PrerequisiteError(
                f"apt-get {args[0]} failed: {' '.join(lines[-3:]) or done.returncode}",
                "check that the apt sources provide this suite and architecture",
            )


def distribution_entries(text: str, blocks: bool, codename: str) -> list[str]:
    """Return the entries of the distribution itself in an apt sources file.

    These are the entries that contain its code name, which is empty if it is unknown, and are not limited to an
    architecture. `blocks`: the file has the deb822 format (`.sources`) rather than one entry per line.
    """
    entries = re.split(r"\n\s*\n", text) if blocks else text.splitlines()
    named = re.compile(rf"^[^#]*\s{re.escape(codename)}(\s|$|[-/])", re.MULTILINE)
    limited = re.compile(r"^Architectures:|\[[^]]*arch=", re.MULTILINE)
    return [entry for entry in entries if codename and named.search(entry) and not limited.search(entry)]


def _stanza(package: Path) -> str:
    """Return a package's entry in the index."""
    done = programs.run(["dpkg-deb", "--field", package], f"read {package.name}", 60)
    if done.returncode:
        raise PrerequisiteError(f"{package.name} is not a valid package: {done.stderr.strip()}", "retry")
    return (
        f"{done.stdout.rstrip()}\nFilename: ./{package.name}\nSize: {package.stat().st_size}\n"
        f"SHA256: {oci.file_sha256(package)}\n"
    )
