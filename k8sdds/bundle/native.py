"""Provide the C and C++ programs of images: installed, or cross-compiled for another architecture."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from k8sdds.bundle import architecture, cache, debian, oci
from k8sdds.bundle.contents import HOST_ARCH, TRIPLETS, Report
from k8sdds.middleware import BACKENDS
from k8sdds.middleware.k8sdds_perftest import build_record
from k8sdds.system import cmake, debian_release, hashing
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.paths import BUNDLED, cache_folder, native_program, shared

LIBRARIES = (
    "libc6-dev", "cyclonedds-dev", "fastdds-tools", "libfastrtps-dev", "libssl-dev", "libtinyxml2-dev",
    "nlohmann-json3-dev", "zlib1g-dev",
)  # fmt: skip
"""Debian packages that perftest is built against, and the package with the Fast DDS discovery server."""
SERVER = "fast-discovery-server"


def programs(group: str, arch: str, report: Report) -> dict[str, Path]:
    """Return the programs of a group (`perftest` or `discovery`): path in the image to file.

    Raises:
        PrerequisiteError: They are not installed, cannot be built, or are for another architecture.
    """
    files = _cross_compiled(arch, report) if _is_cross_compiled(arch) else _installed()
    for path in files.values():
        actual = architecture.of_file(path)
        if actual not in (arch, None):
            raise PrerequisiteError(
                f"{path} is built for {actual}, not for {arch}", "run k8sdds setup, or check K8SDDS_LIBEXEC"
            )
    if group == "discovery":
        script = Path(native_program("discovery-server"))
        return {"/opt/k8sdds/discovery-server": script, f"/usr/bin/{SERVER}": files[SERVER]}
    return {f"/opt/k8sdds/{name}": path for name, path in files.items() if name != SERVER}


def hashes(arch: str, report: Report) -> list[str]:
    """Return `NAME SHA-256` of every program of all groups."""
    paths = [path for group in ("perftest", "discovery") for path in programs(group, arch, report).values()]
    return [f"{path.name} {oci.file_sha256(path)}" for path in paths]


def check(arch: str) -> None:
    """Check whether a build for an architecture is possible, before starting it. Raises PrerequisiteError."""
    if _is_cross_compiled(arch):
        _check_compiler(arch)
        return
    native_program("k8sdds-perftest")
    if shutil.which(SERVER) is None:
        raise PrerequisiteError(f"{SERVER} is not installed", "run: k8sdds setup --for deploy")


def _check_compiler(arch: str) -> None:
    compiler = f"{TRIPLETS[arch]}-g++"
    if shutil.which(compiler) is None:
        raise PrerequisiteError(
            f"the compiler for {arch}, {compiler}, is not installed", f"run: k8sdds setup --for deploy-{arch}"
        )


def cross_compiler(arch: str) -> str:
    """Return the Debian package of the compiler for another architecture."""
    return f"g++-{TRIPLETS[arch].replace('_', '-')}"


def _is_cross_compiled(arch: str) -> bool:
    """Return whether programs for images are compiled: those of a wheel need the libraries next to them."""
    return arch != HOST_ARCH or BUNDLED.is_dir()


def _installed() -> dict[str, Path]:
    """Return the installed programs: the supervisor, perftest with its middleware, the discovery server."""
    check(HOST_ARCH)
    folder = Path(native_program("k8sdds-perftest")).parent
    _check_middlewares(folder)
    server = Path(shutil.which(SERVER) or SERVER).resolve()
    return {**_perftest(folder, Path(native_program("k8sdds-supervisor"))), SERVER: server}


def _check_middlewares(folder: Path) -> None:
    """Check that all backends are in a folder, because an image contains all of them."""
    recorded = build_record(folder)
    for name in BACKENDS:
        if not (folder / f"libk8sdds-perftest-{name}.so").is_file():
            raise PrerequisiteError(
                f"images contain every middleware, but {name} is {recorded.get(name, 'not built')}",
                "install what is missing, then run k8sdds setup",
            )


def _perftest(folder: Path, supervisor: Path) -> dict[str, Path]:
    paths = [
        supervisor,
        folder / "k8sdds-perftest",
        folder / "k8sdds-transactions",
        folder / "k8sdds-link",
        *sorted(folder.glob("libk8sdds-perftest-*.so")),
    ]
    return {path.name: path for path in paths}


def _cross_compiled(arch: str, report: Report) -> dict[str, Path]:
    libexec, sysroot = cross_compiled(arch, report)
    server = (sysroot / "usr/bin" / SERVER).resolve()
    return {**_perftest(libexec, libexec / "k8sdds-supervisor"), SERVER: server}


def cross_compiled(arch: str, report: Report) -> tuple[Path, Path]:
    """Return the folder of programs built against Debian's libraries, and the folder with these, from the cache.

    Raises:
        PrerequisiteError: The compiler is not installed, or the build fails.
    """
    _check_compiler(arch)
    release = debian_release.running("programs for other architectures")
    step = f"building perftest for {arch}"
    try:
        sysroot = debian.sysroot(release, arch, LIBRARIES, report)
    except cache.NotCached:
        cache.require_all(step, cache.SECONDS["native"])
        raise
    built = cache_folder() / "native" / f"{arch}-{_key(arch, sysroot)}"
    with cache.creating(built, step, report) as missing:
        if missing:
            with tempfile.TemporaryDirectory(prefix=".new-", dir=built.parent) as folder:
                _build(arch, sysroot, Path(folder))
                _check_middlewares(Path(folder, "install/libexec/k8sdds"))
                Path(folder, "install").rename(built)
    return built / "libexec/k8sdds", sysroot


def _key(arch: str, sysroot: Path) -> str:
    compiler = subprocess.run(
        [f"{TRIPLETS[arch]}-g++", "--version"], capture_output=True, text=True, timeout=30, check=True
    ).stdout.splitlines()[0]
    key = hashlib.sha256(oci.canonical([sysroot.name, compiler]))
    hashing.add_folder(key, shared("perftest-images"))
    return key.hexdigest()[:16]


def _build(arch: str, sysroot: Path, folder: Path) -> None:
    triplet = TRIPLETS[arch]
    settings = {
        "CMAKE_INSTALL_PREFIX": folder / "install",
        "CMAKE_SYSTEM_NAME": "Linux", "CMAKE_SYSTEM_PROCESSOR": triplet.partition("-")[0],
        "CMAKE_C_COMPILER": f"{triplet}-gcc", "CMAKE_CXX_COMPILER": f"{triplet}-g++",
        "CMAKE_SYSROOT": sysroot, "CMAKE_LIBRARY_ARCHITECTURE": triplet,
        # Make the result independent of the folder in which it is built.
        "CMAKE_C_FLAGS": f"-ffile-prefix-map={folder}=.", "CMAKE_CXX_FLAGS": f"-ffile-prefix-map={folder}=.",
        # Programs that the build runs are this machine's.
        "CMAKE_FIND_ROOT_PATH_MODE_PROGRAM": "NEVER", "CMAKE_FIND_ROOT_PATH_MODE_LIBRARY": "ONLY",
        "CMAKE_FIND_ROOT_PATH_MODE_INCLUDE": "ONLY", "CMAKE_FIND_ROOT_PATH_MODE_PACKAGE": "ONLY",
    }  # fmt: skip
    log = folder.parent / f"{arch}.log"
    cmake.build(
        f"perftest for {arch}", shared("perftest-images"), folder / "build", log, settings, ("install/strip",),
        f"k8sdds setup --for deploy-{arch}",
    )  # fmt: skip
