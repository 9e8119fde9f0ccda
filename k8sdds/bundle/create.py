"""Make a bundle: programs from Go modules, a Debian layer, images, and the index with checksums."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from k8sdds.bundle import golang, oci, packages, recipe
from k8sdds.bundle.content import FORMAT, INDEX, Bundle, Item
from k8sdds.errors import InputError, LackError
from k8sdds.folders import cache_folder, native_program
from k8sdds.nodes.rootfs import SUITE

ARCH_HERE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
BASE_TIMEOUT_S = 900
Said = Callable[[str], None]


def default(
    arches: Sequence[str] = (ARCH_HERE,), said: Said = lambda _: None, own: bool = False
) -> Bundle:
    """The bundle in the cache for these architectures; made when it is missing or its recipe has changed.

    `own`: k8sdds's own images only, which need no Kubernetes to be built.
    """
    _check(arches)
    parts = _parts(arches, said, own)
    images = [asdict(image) for image in recipe.IMAGES]
    key = hashlib.sha256(
        oci.canonical([images, [str(path.name) for path in parts.values()], _native_hashes()])
    ).hexdigest()
    name = "-".join([*(["own"] if own else []), *arches, key[:16]])
    folder = cache_folder() / "bundles" / name
    folder.parent.mkdir(exist_ok=True)
    with (folder.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _write(folder, arches, parts, said, own)
    return Bundle.open(folder)


def create(
    output: Path,
    arches: Sequence[str],
    said: Said = lambda _: None,
    suites: Sequence[str] = (),
    sources: Path | None = None,
) -> Bundle:
    """Make a bundle in a new folder, with the packages that nodes of these distributions (`suites`) need.

    `sources` is a file with apt's sources of them; none: this machine's. Raises InputError or LackError; then
    the folder is not there.
    """
    _check(arches)
    if output.exists():
        raise InputError(f"{output} exists already", "name a new folder")
    # Fetched first: it takes seconds to see that they are not to be had, where building takes minutes.
    with tempfile.TemporaryDirectory() as fetched:
        for suite in suites:
            for arch in arches:
                packages.fetch(Path(fetched, suite, arch), suite, arch, said, sources)
        _write(output, arches, _parts(arches, said), said, debs=Path(fetched))
    return Bundle.open(output)


def _check(arches: Sequence[str]) -> None:
    for arch in arches:
        if arch not in recipe.ARCHES:
            raise InputError(f"no bundle can be made for {arch!r}", f"one of: {', '.join(recipe.ARCHES)}")
    if not arches or len(set(arches)) != len(arches):
        raise InputError("name each architecture once", f"for example --arch {','.join(recipe.ARCHES)}")


def _chosen(own: bool) -> list[recipe.Image]:
    return [image for image in recipe.IMAGES if not own or image.name.startswith(recipe.OWN)]


def _parts(arches: Sequence[str], said: Said, own: bool = False) -> dict[tuple[str, str], Path]:
    """All programs and base archives by (name, arch); `own`: those of k8sdds's own images."""
    needed = {install.program for image in _chosen(own) for install in image.programs}
    parts = {}
    for arch in arches:
        parts["base", arch] = _base(arch, said)
        for program in recipe.PROGRAMS.values():
            if own and program.name not in needed:
                continue
            parts[program.name, arch] = golang.program(program, arch, said)
    return parts


def _native_hashes() -> list[str]:
    programs = [path for group in (_perftest(), _discovery()) for path in group.values()]
    return [f"{path.name} {oci.file_sha256(path)}" for path in programs]


def _perftest() -> dict[str, Path]:
    """The supervisor, perftest, and the middlewares that perftest loads from beside it."""
    folder = Path(native_program("k8sdds-perftest")).parent
    programs = [Path(native_program("k8sdds-supervisor")), folder / "k8sdds-perftest"]
    programs += sorted(folder.glob("libk8sdds-perftest-*.so"))
    return {f"/opt/k8sdds/{path.name}": path for path in programs}


def _discovery() -> dict[str, Path]:
    """Fast DDS's own discovery server, and the script that gives it the id of its pod."""
    found = shutil.which("fast-discovery-server")
    if found is None:
        raise LackError("fast-discovery-server is not installed", "sudo apt-get install fastdds-tools")
    script = Path(native_program("discovery-server"))
    return {"/opt/k8sdds/discovery-server": script, "/usr/bin/fast-discovery-server": Path(found).resolve()}


NATIVE = {"perftest": _perftest, "discovery": _discovery}
"""Groups of programs that are only there for this machine: path in the image to file."""


def _base(arch: str, said: Said) -> Path:
    """Archive of the Debian layer, unpacked but never run: so any architecture can be made here."""
    wanted = hashlib.sha256(oci.canonical([SUITE, recipe.BASE_PACKAGES])).hexdigest()[:12]
    path = cache_folder() / "bases" / f"{SUITE}-{arch}-{wanted}.tar"
    if path.exists():
        return path
    if not shutil.which("mmdebstrap"):
        raise LackError("mmdebstrap is not installed", "sudo apt-get install mmdebstrap")
    said(f"fetching Debian packages for {arch}")
    path.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        unfinished = Path(folder, "base.tar")
        include = f"--include={','.join(recipe.BASE_PACKAGES)}"
        mode = "root" if os.geteuid() == 0 else "unshare"
        done = subprocess.run(
            ["mmdebstrap", f"--mode={mode}", "--variant=extract", f"--architectures={arch}", include, SUITE,
             unfinished],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BASE_TIMEOUT_S,
            env={**os.environ, "SOURCE_DATE_EPOCH": "0", "TMPDIR": folder},
        )  # fmt: skip
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.startswith("E:")]
            raise LackError(
                f"cannot fetch Debian packages for {arch}: {' '.join(lines[-3:])}",
                "apt-get update must work here",
            )
        unfinished.rename(path)
    return path


def _write(
    folder: Path, arches: Sequence[str], parts: dict[tuple[str, str], Path], said: Said, own: bool = False,
    debs: Path | None = None,
) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=".bundle-", dir=folder.parent))
    try:
        unfinished.chmod(0o755)
        layout = oci.Layout(unfinished / "oci")
        items: list[Item] = []
        for arch in arches:
            items += [] if own else _binaries(unfinished, arch, parts)
            items += _images(layout, arch, parts, said, own)
        layout.finish()
        if debs is not None:
            items += _packages(debs, unfinished)
        data = {
            "format": FORMAT, "name": f"kubernetes-{recipe.KUBERNETES}", "kubernetes": recipe.KUBERNETES,
            "toolchain": f"go{recipe.GO}", "arches": list(arches), "items": [asdict(item) for item in items],
        }  # fmt: skip
        (unfinished / INDEX).write_bytes(oci.canonical(data) + b"\n")
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _packages(source: Path, folder: Path) -> list[Item]:
    """SUITE/ARCH/FILE of the source as items of the bundle."""
    items = []
    for path in sorted(path for path in source.rglob("*") if path.is_file()):
        inside = f"packages/{path.relative_to(source)}"
        (folder / inside).parent.mkdir(parents=True, exist_ok=True)
        shutil.move(path, folder / inside)
        name, _, rest = path.name.partition("_")
        kind = "index" if path.name == packages.INDEX else "package"
        digest, size = oci.file_sha256(folder / inside), (folder / inside).stat().st_size
        items.append(Item(kind, name, rest.rpartition("_")[0], path.parent.name, inside, digest, size))
    return items


def _binaries(folder: Path, arch: str, parts: dict[tuple[str, str], Path]) -> list[Item]:
    items = []
    for install in recipe.INSTALLS:
        source, path = parts[install.program, arch], f"bin/{arch}/{install.program}"
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, folder / path)
        (folder / path).chmod(0o755)
        version = recipe.PROGRAMS[install.program].version
        digest, size = oci.file_sha256(folder / path), source.stat().st_size
        items.append(
            Item(
                "binary",
                install.program,
                version,
                arch,
                path,
                digest,
                size,
                install.target,
                links=install.links,
            )
        )
    return items


def _images(
    layout: oci.Layout, arch: str, parts: dict[tuple[str, str], Path], said: Said, own: bool = False
) -> list[Item]:
    shell: dict[str, oci.Entry] = {
        f"/usr/local/bin/{name}": oci.Link("/bin/busybox") for name in recipe.SHELL
    }
    shell["/bin/sh"] = oci.Link("busybox")
    # What Debian's alternatives would choose when packages are configured, which these never are.
    for family in ("iptables", "ip6tables"):
        for name in (family, f"{family}-save", f"{family}-restore"):
            shell[f"/usr/sbin/{name}"] = oci.Link("xtables-nft-multi")
    shell["/etc/nsswitch.conf"] = b"hosts: files dns\n"
    shell["/etc/passwd"] = b"root:x:0:0:root:/:/bin/sh\n"
    base = layout.base_layer(parts["base", arch], shell)
    made: dict[Any, dict[str, Any]] = {}
    items = []
    for image in _chosen(own):
        if image.native and arch != ARCH_HERE:
            said(f"{image.name} is left out for {arch}: its programs are only built for this machine")
            continue
        layers = [base] if image.base else []
        if image.programs and image.programs not in made:
            entries: dict[str, oci.Entry] = {}
            for install in image.programs:
                entries[install.target] = parts[install.program, arch]
                entries |= {link: oci.Link(install.target) for link in install.links}
            made[image.programs] = layout.layer(entries)
        layers += [made[image.programs]] if image.programs else []
        if image.native:
            layers.append(layout.layer(NATIVE[image.native]()))
        digest = layout.image(image.name, arch, image.entrypoint, layers, image.user)
        size = sum(layer["size"] for layer in layers)
        items.append(
            Item("image", image.name, image.version, arch, f"oci/blobs/sha256/{digest}", digest, size)
        )
    return items
