"""The programs of our images that are not Go: those installed here, or built for another architecture."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from k8sdds.bundle import architecture, cache, debian, oci
from k8sdds.bundle.debian import Said
from k8sdds.bundle.recipe import ARCH_HERE
from k8sdds.middleware import MIDDLEWARES
from k8sdds.middleware.k8sdds_perftest import K8sddsPerftest
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.paths import CHECKOUT, cache_folder, native_program

SOURCES = CHECKOUT / "perftest-images"
LIBRARIES = (
    "libc6-dev", "cyclonedds-dev", "fastdds-tools", "libfastrtps-dev", "libssl-dev", "libtinyxml2-dev",
    "nlohmann-json3-dev", "zlib1g-dev",
)  # fmt: skip
"""Debian packages that perftest is built against; and Fast DDS's discovery server."""
TRIPLETS = {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}
SERVER = "fast-discovery-server"
BUILD_TIMEOUT_S = 1200
"""Two shared cores take about two minutes."""


def programs(group: str, arch: str, said: Said) -> dict[str, Path]:
    """The programs of a group (`perftest` or `discovery`): path in the image to file. Raises PrerequisiteError."""
    found = _here() if arch == ARCH_HERE else _crossed(arch, said)
    for path in found.values():
        really = architecture.of_file(path)
        if really not in (arch, None):
            raise PrerequisiteError(
                f"{path} is for {really}, where {arch} is wanted", "make setup; K8SDDS_LIBEXEC?"
            )
    if group == "discovery":
        script = Path(native_program("discovery-server"))
        return {"/opt/k8sdds/discovery-server": script, f"/usr/bin/{SERVER}": found[SERVER]}
    return {f"/opt/k8sdds/{name}": path for name, path in found.items() if name != SERVER}


def hashes(arch: str, said: Said) -> list[str]:
    """Name and SHA-256 of all of them."""
    both = [path for group in ("perftest", "discovery") for path in programs(group, arch, said).values()]
    return [f"{path.name} {oci.file_sha256(path)}" for path in both]


def check(arch: str) -> None:
    """Raise PrerequisiteError where programs for this architecture cannot be had here; before anything takes long."""
    if arch == ARCH_HERE:
        native_program("k8sdds-perftest")
        if shutil.which(SERVER) is None:
            raise PrerequisiteError(f"{SERVER} is not installed", "sudo apt-get install fastdds-tools")
        return
    compiler = f"{TRIPLETS[arch]}-g++"
    if shutil.which(compiler) is None:
        package = f"g++-{TRIPLETS[arch].replace('_', '-')}"
        raise PrerequisiteError(f"{compiler} is not installed, which builds perftest for {arch}",
                        f"sudo apt-get install {package}")  # fmt: skip
    if not SOURCES.is_dir():
        raise PrerequisiteError(
            f"perftest's sources are not here, to be built for {arch}",
            "make it in a checkout of k8sdds; or on a machine of that architecture",
        )


def _here() -> dict[str, Path]:
    """Those that are installed: the supervisor, perftest with its middlewares, the discovery server."""
    check(ARCH_HERE)
    folder = Path(native_program("k8sdds-perftest")).parent
    server = Path(shutil.which(SERVER) or SERVER).resolve()
    return {**_perftest(folder, Path(native_program("k8sdds-supervisor"))), SERVER: server}


def _perftest(folder: Path, supervisor: Path) -> dict[str, Path]:
    found = [supervisor, folder / "k8sdds-perftest", *sorted(folder.glob("libk8sdds-perftest-*.so"))]
    return {path.name: path for path in found}


def _crossed(arch: str, said: Said) -> dict[str, Path]:
    """Those for another architecture: built from the sources against Debian's libraries, and cached."""
    check(arch)
    sysroot = debian.sysroot(arch, LIBRARIES, said)
    made = cache_folder() / "native" / f"{arch}-{_key(arch, sysroot)}"
    with cache.making(made) as missing:
        if missing:
            said(f"building perftest for {arch}")
            with tempfile.TemporaryDirectory(prefix=".new-", dir=made.parent) as folder:
                _build(arch, sysroot, Path(folder))
                Path(folder, "made").rename(made)
    libexec = made / "libexec/k8sdds"
    server = (sysroot / "usr/bin" / SERVER).resolve()
    return {**_perftest(libexec, libexec / "k8sdds-supervisor"), SERVER: server}


def _key(arch: str, sysroot: Path) -> str:
    compiler = subprocess.run(
        [f"{TRIPLETS[arch]}-g++", "--version"], capture_output=True, text=True, timeout=30, check=True
    ).stdout.splitlines()[0]
    key = hashlib.sha256(oci.canonical([sysroot.name, compiler]))
    for path in sorted(path for path in SOURCES.rglob("*") if path.is_file()):
        key.update(f"\n{path.relative_to(SOURCES)} {oci.file_sha256(path)}".encode())
    return key.hexdigest()[:16]


def _build(arch: str, sysroot: Path, folder: Path) -> None:
    triplet = TRIPLETS[arch]
    settings = {
        "CMAKE_BUILD_TYPE": "Release", "CMAKE_INSTALL_PREFIX": folder / "made",
        "CMAKE_SYSTEM_NAME": "Linux", "CMAKE_SYSTEM_PROCESSOR": triplet.partition("-")[0],
        "CMAKE_C_COMPILER": f"{triplet}-gcc", "CMAKE_CXX_COMPILER": f"{triplet}-g++",
        "CMAKE_SYSROOT": sysroot, "CMAKE_LIBRARY_ARCHITECTURE": triplet,
        # The same bytes wherever they are built.
        "CMAKE_C_FLAGS": f"-ffile-prefix-map={folder}=.", "CMAKE_CXX_FLAGS": f"-ffile-prefix-map={folder}=.",
        # Programs that the build runs are this machine's.
        "CMAKE_FIND_ROOT_PATH_MODE_PROGRAM": "NEVER", "CMAKE_FIND_ROOT_PATH_MODE_LIBRARY": "ONLY",
        "CMAKE_FIND_ROOT_PATH_MODE_INCLUDE": "ONLY", "CMAKE_FIND_ROOT_PATH_MODE_PACKAGE": "ONLY",
    }  # fmt: skip
    configure = ["cmake", "-S", SOURCES, "-B", folder / "build", "-G", "Ninja"]
    configure += [f"-D{key}={value}" for key, value in settings.items()]
    log = folder.parent / f"{arch}.log"
    for argv in (configure, ["cmake", "--build", folder / "build", "--target", "install/strip"]):
        try:
            with log.open("a" if argv[1] == "--build" else "w") as output:
                done = subprocess.run(
                    argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                    timeout=BUILD_TIMEOUT_S, env={**os.environ, "LC_ALL": "C"},
                )  # fmt: skip
        except FileNotFoundError:
            raise PrerequisiteError(
                "cmake is not installed", "sudo apt-get install cmake ninja-build"
            ) from None
        except subprocess.TimeoutExpired:
            raise PrerequisiteError(
                f"building perftest for {arch} did not end within {BUILD_TIMEOUT_S} s"
            ) from None
        if done.returncode:
            lines = [line for line in log.read_text().splitlines() if "rror" in line][:3]
            raise PrerequisiteError(
                f"cannot build perftest for {arch}: {' | '.join(lines)}", f"all it said: {log}"
            )
    # A middleware whose package is missing is left out by the build; here none may be.
    for name in (one.name for one in MIDDLEWARES.values() if isinstance(one, K8sddsPerftest)):
        if not (folder / "made/libexec/k8sdds" / f"libk8sdds-perftest-{name}.so").is_file():
            raise PrerequisiteError(f"perftest for {arch} was built without {name}", f"all it said: {log}")
