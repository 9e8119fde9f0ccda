"""Debian packages of a bundle: fetched by apt for any suite and architecture, with the index that it wants.

apt works here with folders of its own: nothing is installed, and this machine's lists stay as they are.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from k8sdds.bundle import cache, oci
from k8sdds.system.errors import InputError, PrerequisiteError
from k8sdds.system.paths import cache_folder

NODE_PACKAGES = (
    "conntrack", "containerd", "ebtables", "ethtool", "iproute2", "ipset", "iptables", "kmod", "nftables",
    "runc", "socat",
)  # fmt: skip
"""What a node needs of its distribution, beside what every installation has."""
INDEX = "Packages"
TIMEOUT_S = 900
SUITE = re.compile(r"[a-z][a-z0-9-]{1,30}")


def suite_here() -> str:
    """The code name of this machine's distribution, such as bookworm; empty if it does not say."""
    try:
        lines = Path("/etc/os-release").read_text().splitlines()
    except OSError:
        return ""
    found = [line.partition("=")[2].strip('"') for line in lines if line.startswith("VERSION_CODENAME=")]
    return found[0] if found else ""


def fetch(
    folder: Path, suite: str, arch: str, said: Callable[[str], None], sources: Path | None = None
) -> list[Path]:
    """Fetch NODE_PACKAGES, with all that they need, into a new folder, and write its index: the files.

    From this machine's sources of packages with its code name replaced by `suite`, or from those in a file
    (`sources`, as in /etc/apt/sources.list: for another distribution). Raises InputError or PrerequisiteError.
    """
    if not SUITE.fullmatch(suite):
        raise InputError(f"{suite!r} cannot name a suite", "a code name such as bookworm, trixie or noble")
    if sources is not None and not sources.is_file():
        raise InputError(f"there is no file {sources}", "apt's sources, as in /etc/apt/sources.list")
    if not shutil.which("apt-get"):
        raise PrerequisiteError("apt-get is not here", "fetch packages on a machine of the Debian family")
    said(f"fetching packages of {suite} for {arch}")
    with tempfile.TemporaryDirectory() as made:
        apt = _Apt(Path(made), arch)
        apt.write_sources(suite, sources)
        apt.run("update", "-q=2")
        apt.run("install", "-q=2", "--yes", "--no-install-recommends", "--download-only", *NODE_PACKAGES)
        archives = sorted((Path(made) / "cache/archives").glob("*.deb"))
        folder.mkdir(parents=True)
        files = []
        for archive in archives:
            # apt writes the colon of an epoch as %3a, which some copying programs change.
            files.append(folder / archive.name.replace("%3a", "-"))
            shutil.move(archive, files[-1])
    (folder / INDEX).write_text("\n".join(_stanza(path) for path in files))
    return files


def program(package: str, inside: str, arch: str, target: Path) -> None:
    """Fetch a package and take one file out of it; nothing is installed, none of its scripts run.

    Raises PrerequisiteError.
    """
    with tempfile.TemporaryDirectory() as made:
        apt = _Apt(Path(made), arch)
        apt.write_sources(suite_here(), None)
        apt.run("update", "-q=2")
        apt.run("download", "-q=2", package)
        (archive,) = Path(made).glob("*.deb")
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", archive], stdout=subprocess.PIPE) as unpacking:
            with tarfile.open(fileobj=unpacking.stdout, mode="r|") as content:
                for member in content:
                    if member.name.removeprefix(".") == inside:
                        source = content.extractfile(member)
                        if source is not None:
                            with target.open("wb") as output:
                                shutil.copyfileobj(source, output)
                            target.chmod(0o755)
                            break
            unpacking.kill()
    if not target.exists():
        raise PrerequisiteError(f"{inside} is not in the package {package}", "Debian 12's has it")


def cached(suite: str, arch: str, said: Callable[[str], None]) -> Path:
    """A folder with NODE_PACKAGES and all that they need, with its index; fetched anew each day.

    Raises InputError or PrerequisiteError.
    """
    wanted = hashlib.sha256(oci.canonical(NODE_PACKAGES)).hexdigest()[:8]
    today = datetime.now(UTC).strftime("%Y%m%d")
    folder = cache_folder() / "packages" / f"{suite}-{arch}-{today}{wanted}"
    with cache.making(folder) as missing:
        if missing:
            with tempfile.TemporaryDirectory(prefix=".new-", dir=folder.parent) as unfinished:
                fetch(Path(unfinished, "packages"), suite, arch, said)
                Path(unfinished, "packages").rename(folder)
    if missing:
        cache.prune()
    return folder


class _Apt:
    """apt for another suite and architecture, with its state in a folder that is thrown away."""

    def __init__(self, folder: Path, arch: str) -> None:
        self.folder = folder
        for name in ("state/lists/partial", "cache/archives/partial", "etc/sources.list.d"):
            (folder / name).mkdir(parents=True)
        # Nothing is installed: so all that is needed is fetched.
        (folder / "status").touch()
        (folder / "apt.conf").write_text(
            f'APT::Architecture "{arch}";\nAPT::Architectures {{ "{arch}"; }};\n'
            f'Dir::State "{folder}/state";\nDir::State::status "{folder}/status";\n'
            f'Dir::Cache "{folder}/cache";\nDir::Etc::SourceList "{folder}/etc/sources.list";\n'
            f'Dir::Etc::SourceParts "{folder}/etc/sources.list.d";\n'
            'APT::Sandbox::User "root";\nAcquire::Languages "none";\nAcquire::Retries "3";\n'
            # What this machine wants done after apt is about its own folders.
            "#clear DPkg::Post-Invoke;\n#clear APT::Update::Post-Invoke;\n"
            "#clear APT::Update::Post-Invoke-Success;\n"
        )

    def write_sources(self, suite: str, given: Path | None) -> None:
        """Sources of packages: those given, or this machine's where they name its code name."""
        if given is not None:
            name = "own.sources" if given.suffix == ".sources" else "own.list"
            shutil.copyfile(given, self.folder / "etc/sources.list.d" / name)
            return
        here = suite_here()
        found = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
        number = 0
        for path in found:
            if path.suffix not in (".list", ".sources") or not path.is_file():
                continue
            for text in _own_entries(path.read_text(), path.suffix == ".sources", here):
                number += 1
                target = self.folder / "etc/sources.list.d" / f"{number}{path.suffix}"
                target.write_text(re.sub(rf"\b{re.escape(here)}\b", suite, text) + "\n")
        if not number:
            raise PrerequisiteError(
                "this machine's sources of packages name no suite of its own",
                "give them by --apt-sources FILE",
            )

    def run(self, *words: str) -> None:
        """Run apt-get to its end. Raises PrerequisiteError with what it said."""
        # Read before this machine's settings, for the architecture, and after them, to count.
        own = str(self.folder / "apt.conf")
        environment = {**os.environ, "APT_CONFIG": own, "LC_ALL": "C"}
        try:
            done = subprocess.run(
                ["apt-get", "-c", own, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                timeout=TIMEOUT_S, env=environment, cwd=self.folder,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise PrerequisiteError(f"apt-get {words[0]} did not end within {TIMEOUT_S} s") from None
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.startswith("E:")]
            raise PrerequisiteError(
                f"apt-get {words[0]} failed: {' '.join(lines[-3:]) or done.returncode}",
                "the sources of packages must have this suite and architecture",
            )


def _own_entries(text: str, blocks: bool, here: str) -> list[str]:
    """The entries of apt's sources that name the code name and no architecture: the distribution's own."""
    entries = re.split(r"\n\s*\n", text) if blocks else text.splitlines()
    named = re.compile(rf"^[^#]*\s{re.escape(here)}(\s|$|[-/])", re.MULTILINE)
    limited = re.compile(r"^Architectures:|\[[^]]*arch=", re.MULTILINE)
    return [entry for entry in entries if here and named.search(entry) and not limited.search(entry)]


def _stanza(package: Path) -> str:
    """A package's entry in the index."""
    done = subprocess.run(["dpkg-deb", "--field", package], capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise PrerequisiteError(f"{package.name} is no package: {done.stderr.strip()}", "try again")
    return (
        f"{done.stdout.rstrip()}\nFilename: ./{package.name}\nSize: {package.stat().st_size}\n"
        f"SHA256: {oci.file_sha256(package)}\n"
    )


def install_script(folder: str, names: Sequence[str] = NODE_PACKAGES) -> str:
    """Shell lines for a node: install packages from a folder with an index, and from nowhere else.

    apt's lists of other sources stay as they are.
    """
    return f"""\
(
set -e
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
own=$(mktemp -d); trap 'rm -rf "$own"' EXIT
mkdir -p "$own/lists/partial" "$own/none"
echo 'deb [trusted=yes] file:{folder} ./' >"$own/bundle.list"
apt() {{
  apt-get -q=2 -o Dir::Etc::SourceList="$own/bundle.list" -o Dir::Etc::SourceParts="$own/none" \
    -o Dir::State::Lists="$own/lists" -o APT::Sandbox::User=root "$@"
}}
apt update
apt install --yes --no-install-recommends {" ".join(names)} </dev/null
)
"""
