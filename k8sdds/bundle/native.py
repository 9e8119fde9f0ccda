"""Provide the C and C++ programs of images: installed, or cross-compiled for another architecture."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from k8sdds.bundle import architecture, cache, debian, oci
from k8sdds.bundle.contents import HOST_ARCH, TRIPLETS, Report
from k8sdds.middleware import ALWAYS_BUILT
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
ROUTER, LICENSES = "zenohd", "zenoh-licenses.txt"
"""The router of Zenoh and the licenses of its crates, if it is built."""
LAB_ONLY = "libk8sdds-perftest-ros2-*.so"
"""Modules that images do not contain, because they do not contain the libraries of ROS 2."""
SETUP_ZENOH = "run: k8sdds setup --for lab-zenoh"


def programs(group: str, arch: str, report: Report) -> dict[str, Path]:
    """Return the programs of a group (`perftest` or `discovery`): path in the image to file."""
    if _is_cross_compiled(arch):
        libexec, sysroot = cross_compiled(arch, report)
        files = _perftest(libexec, libexec / "k8sdds-supervisor")
        files[SERVER] = (sysroot / "usr/bin" / SERVER).resolve()
    else:
        files = _installed()
    for path in files.values():
        actual = architecture.of_file(path)
        if actual not in (arch, None):
            raise PrerequisiteError(
                f"{path} is built for {actual}, not for {arch}", "run k8sdds setup, or check K8SDDS_LIBEXEC"
            )
    if group == "discovery":
        script = Path(native_program("discovery-server"))
        router = {f"/opt/k8sdds/{name}": files[name] for name in (ROUTER, LICENSES) if name in files}
        return {"/opt/k8sdds/discovery-server": script, f"/usr/bin/{SERVER}": files[SERVER], **router}
    return {f"/opt/k8sdds/{name}": path for name, path in files.items() if name not in (SERVER, ROUTER)}


def hashes(arch: str, report: Report) -> list[str]:
    """Return `NAME SHA-256` of every program of all groups."""
    paths = [path for group in ("perftest", "discovery") for path in programs(group, arch, report).values()]
    return [f"{path.name} {oci.file_sha256(path)}" for path in paths]


def check(arch: str) -> None:
    """Check whether a build for an architecture is possible, before starting it."""
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
    """Check that the backends are in a folder, because an image contains all of them. That of Zenoh is optional."""
    recorded = build_record(folder)
    for name in ALWAYS_BUILT:
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
        *sorted(set(folder.glob("libk8sdds-perftest-*.so")) - set(folder.glob(LAB_ONLY))),
        folder / ROUTER,
        folder / LICENSES,
    ]
    return {path.name: path for path in paths if path.name not in (ROUTER, LICENSES) or path.is_file()}


def cross_compiled(arch: str, report: Report) -> tuple[Path, Path]:
    """Return the folder of programs built against Debian's libraries, and the folder with these, from the cache.

    They include Zenoh if the programs of this machine do. If it cannot be built, the reason is reported.
    """
    _check_compiler(arch)
    release = debian_release.running("programs for other architectures")
    try:
        sysroot = debian.sysroot(release, arch, LIBRARIES, report)
        built = _with_zenoh(release, arch, sysroot, report) or _compiled(arch, sysroot, report)
    except cache.NotCached:
        cache.require_all(f"building perftest for {arch}", cache.SECONDS["native"])
        raise
    return built / "libexec/k8sdds", sysroot


def _with_zenoh(release: debian_release.Release, arch: str, sysroot: Path, report: Report) -> Path | None:
    """Return the folder of programs with Zenoh. None if it is not built on this machine, or cannot be built."""
    if sysroot in _without_zenoh or not _has_zenoh():
        return None
    try:
        library = _rust_library() if arch != HOST_ARCH else None
        rust = debian.sysroot(release, arch, (library,), report) if library else None
        return _compiled(arch, sysroot, report, zenoh=True, rust=rust)
    except PrerequisiteError as error:
        report(f"without Zenoh for {arch}: {error.message} ({error.remedy})")
        _without_zenoh.add(sysroot)
        return None


_without_zenoh: set[Path] = set()
"""Sysroots for which this process could not build Zenoh. It does not try again: all images have the same programs."""


def _has_zenoh() -> bool:
    """Return whether Zenoh is built on this machine, which also means that its crates are downloaded."""
    try:
        return bool(native_program(ROUTER))
    except PrerequisiteError:
        return False


def _compiled(
    arch: str, sysroot: Path, report: Report, zenoh: bool = False, rust: Path | None = None
) -> Path:
    """Return the folder into which the programs are installed, from the cache.

    `report` also receives why the programs do not include Zenoh. `rust` is a folder with Rust's standard library,
    unless the compiler has it.
    """
    built = cache_folder() / "native" / f"{arch}-{_key(arch, sysroot, zenoh, rust)}"
    with cache.creating(built, f"building perftest for {arch}", report) as missing:
        if missing:
            with tempfile.TemporaryDirectory(prefix=".new-", dir=built.parent) as folder:
                _build(arch, sysroot, zenoh, rust, Path(folder))
                libexec = Path(folder, "install/libexec/k8sdds")
                _check_middlewares(libexec)
                if zenoh and not (libexec / ROUTER).is_file():
                    report(f"without Zenoh for {arch}: {build_record(libexec).get('zenoh', 'not built')}")
                elif not zenoh and sysroot not in _without_zenoh:
                    report(f"without Zenoh for {arch}: it is not built on this machine ({SETUP_ZENOH})")
                Path(folder, "install").rename(built)
    return built


def _key(arch: str, sysroot: Path, zenoh: bool, rust: Path | None) -> str:
    compiler = _output(f"{TRIPLETS[arch]}-g++", "--version").partition("\n")[0]
    parts = [sysroot.name, compiler, *([rust.name] if rust else []), *(_rust(arch) if zenoh else [])]
    key = hashlib.sha256(oci.canonical(parts))
    hashing.add_folder(key, shared("perftest-images"))
    return key.hexdigest()[:16]


def _rust(arch: str) -> list[str]:
    """Return the versions of Rust and cargo, and whether Rust has a standard library for an architecture."""
    target = f"{TRIPLETS[arch].partition('-')[0]}-unknown-linux-gnu"
    library = _output("rustc", "--print", "target-libdir", "--target", target)
    return [
        _output("rustc", "--version"),
        _output("cargo", "--version"),
        str(bool(library) and Path(library).is_dir()),
    ]


def _output(*argv: str) -> str:
    """Return the output of a program; empty if it is not installed."""
    if not shutil.which(argv[0]):
        return ""
    return subprocess.run(argv, capture_output=True, text=True, timeout=30).stdout.strip()


def _rust_library() -> str | None:
    """Return the Debian package of Rust's standard library that fits the compiler, if that is one of Debian's."""
    compiler = shutil.which("rustc")
    if compiler is None:
        return None
    owner = subprocess.run(["dpkg-query", "--search", compiler], capture_output=True, text=True).stdout
    package = owner.strip().partition(":")[0]  # rustc or rustc-web
    return f"{package.replace('rustc', 'libstd-rust')}-dev" if package else None


def _build(arch: str, sysroot: Path, zenoh: bool, rust: Path | None, folder: Path) -> None:
    triplet = TRIPLETS[arch]
    settings = {
        "CMAKE_INSTALL_PREFIX": folder / "install",
        "K8SDDS_ZENOH": "ON" if zenoh else "OFF", **({"K8SDDS_RUST_SYSROOT": rust / "usr"} if rust else {}),
        "CMAKE_SYSTEM_NAME": "Linux", "CMAKE_SYSTEM_PROCESSOR": triplet.partition("-")[0],
        "CMAKE_C_COMPILER": f"{triplet}-gcc", "CMAKE_CXX_COMPILER": f"{triplet}-g++",
        "CMAKE_SYSROOT": sysroot, "CMAKE_LIBRARY_ARCHITECTURE": triplet,
        # Make the result independent of the folder in which it is built.
        "CMAKE_C_FLAGS": f"-ffile-prefix-map={folder}=.", "CMAKE_CXX_FLAGS": f"-ffile-prefix-map={folder}=.",
        # Programs that the build runs are this machine's.
        "CMAKE_FIND_ROOT_PATH_MODE_PROGRAM": "NEVER", "CMAKE_FIND_ROOT_PATH_MODE_LIBRARY": "ONLY",
        "CMAKE_FIND_ROOT_PATH_MODE_INCLUDE": "ONLY", "CMAKE_FIND_ROOT_PATH_MODE_PACKAGE": "ONLY",
    }  # fmt: skip
    log = folder.parent / f"{arch}{'-zenoh' if zenoh else ''}.log"  # a build without Zenoh may follow
    cmake.build(
        f"perftest for {arch}", shared("perftest-images"), folder / "build", log, settings, ("install/strip",),
        f"k8sdds setup --for deploy-{arch}",
    )  # fmt: skip
