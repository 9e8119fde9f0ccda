"""Provide the sources of Go programs that no module proxy serves: a clone of a pinned tag, or what the user provides.

Sources from outside are only compiled: nothing in them is executed, and links in an archive are left out.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from k8sdds.bundle import cache, oci, official
from k8sdds.bundle.contents import PROGRAMS, Program, Report, Repository
from k8sdds.system import programs, reading, tar
from k8sdds.system.errors import InputError, PrerequisiteError
from k8sdds.system.faults import explained
from k8sdds.system.paths import cache_folder
from k8sdds.system.yaml_text import nearest

CLONE_TIMEOUT_S = 300
GO_MOD = "go.mod"
OPTION = "--source"
NAMES = tuple(
    dict.fromkeys(program.source_name for program in PROGRAMS.values() if program.repository is not None)
)
"""Sources that the user may provide."""
NO_SOURCES: Mapping[str, Path] = MappingProxyType({})
_LOCATIONS = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE",
)  # fmt: skip
"""Variables that Git sets in hooks. With them, it would change the user's repository instead of the clone."""


def parse(values: Sequence[str]) -> dict[str, Path]:
    """Return the sources that the user provides: program, or path of a Go module, to folder or archive.

    A module is replaced in all programs, or with PROGRAM:MODULE in one.

    Args:
        values: Each NAME=FOLDER or NAME=ARCHIVE.

    Raises:
        InputError: A value is not valid.
    """
    sources: dict[str, Path] = {}
    for value in values:
        name, _, path = value.partition("=")
        if not name or name.endswith(":") or not path:
            raise InputError(f"{OPTION} {value!r} is not valid", f"use {OPTION} NAME=FOLDER or NAME=ARCHIVE")
        program = name.partition(":")[0]
        if program not in NAMES and (":" in name or "/" not in name):
            raise InputError(
                f"{OPTION} {value}: unknown program {program!r}{nearest(program, list(NAMES))}",
                "name a program, or a Go module that it requires by its full path",
            )
        if name in sources:
            raise InputError(f"{OPTION} {name} is given twice", "give each source once")
        sources[name] = Path(path).expanduser()
        if not sources[name].exists():
            raise InputError(f"{OPTION} {value}: {path} does not exist", "give a folder or an archive")
    return sources


def origin(program: Program, sources: Mapping[str, Path]) -> str:
    """Return what a program is built from, with hashes of the content.

    Raises:
        InputError: A source cannot be read.
    """
    repository = _repository(program)
    own = sources.get(program.source_name)
    parts = [_described(own) if own else f"{repository.url}@{repository.commit}"]
    return " ".join(
        [*parts, *(f"{module}={_described(path)}" for module, path in _modules(program, sources))]
    )


@contextlib.contextmanager
def checked_out(program: Program, sources: Mapping[str, Path], report: Report) -> Iterator[Path]:
    """Yield a temporary folder with the sources of a program, next to those of the modules it requires.

    Raises:
        InputError: A source that the user provides is not valid.
        PrerequisiteError: The repository cannot be cloned, or its tag refers to another commit.
    """
    repository = _repository(program)
    with tempfile.TemporaryDirectory(prefix="k8sdds-source-") as temporary:
        folder = Path(temporary, "source")
        own = sources.get(program.source_name)
        if own:
            _copy(own, folder, repository.module)
        else:
            # A link may lead to a file that the repository does not have.
            shutil.copytree(clone(program, report), folder, symlinks=True)
        for number, (module, path) in enumerate(_modules(program, sources)):
            _copy(path, Path(temporary, str(number)), module)
        yield folder / program.folder


def replacements(program: Program, folder: Path, sources: Mapping[str, Path]) -> dict[str, Path]:
    """Return the folders of the modules that the user provides for a program, by the modules' paths.

    Raises:
        InputError: The module in `folder` does not require one of them.
    """
    required = set(reading.text(folder / GO_MOD).split())
    modules = [module for module, _ in _modules(program, sources)]
    for module in modules:
        if module not in required:
            raise InputError(
                f"{OPTION} {module}: {program.source_name} does not require this module",
                f"leave it out, or name the program that requires it: {OPTION} PROGRAM:{module}",
            )
    return {module: folder.parent / str(number) for number, module in enumerate(modules)}


def _repository(program: Program) -> Repository:
    assert program.repository is not None
    return program.repository


def _modules(program: Program, sources: Mapping[str, Path]) -> list[tuple[str, Path]]:
    """Return the Go modules that the user provides for a program, with their sources.

    Those for this program alone replace those for all programs.
    """
    modules = {}
    for name, path in sorted(sources.items(), key=lambda source: ":" in source[0]):
        owner, _, module = name.rpartition(":")
        if name not in NAMES and owner in ("", program.source_name):
            modules[module] = path
    return sorted(modules.items())


def _described(path: Path) -> str:
    """Return the name of a folder or archive with a hash of its content."""
    with explained(f"cannot read {path}"):
        if path.is_file():
            return f"{path.name}#sha256={oci.file_sha256(path)}"
        key = hashlib.sha256()
        for file in _files(path):
            key.update(os.fsencode(file.relative_to(path)) + f" {oci.file_sha256(file)}\n".encode())
    return f"{path.resolve().name}#sha256={key.hexdigest()}"


def _files(folder: Path) -> list[Path]:
    """Return the files of a folder, without links and without Git's own data."""
    paths = (Path(top, name) for top, _, names in os.walk(folder) for name in names)
    return sorted(
        path
        for path in paths
        if path.is_file() and not path.is_symlink() and ".git" not in path.relative_to(folder).parts
    )


def _copy(source: Path, folder: Path, module: str) -> None:
    """Copy a folder, or unpack an archive, whose top folder or only folder contains a Go module."""
    if source.is_file():
        try:
            tar.unpack(source, folder, skip_links=True)
        except tar.DamagedTar as error:
            raise InputError(f"{source} is not an archive: {error}", "give a folder or a .tar.gz") from error
    else:
        for path in _files(source):
            target = folder / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    if not (folder / GO_MOD).is_file():
        _lift_only_folder(folder)
    if not (folder / GO_MOD).is_file():
        raise InputError(f"{source} contains no {GO_MOD}", f"give the sources of {module}")
    declared = re.search(r"^module\s+(\S+)", reading.text(folder / GO_MOD), re.MULTILINE)
    if not declared or declared[1].strip('"') != module:
        found = declared[1] if declared else "no module"
        raise InputError(f"{source} contains {found}, not {module}", f"give the sources of {module}")


def _lift_only_folder(folder: Path) -> None:
    """Replace a folder by the only folder in it, such as NAME-VERSION in a published archive."""
    inside = list(folder.iterdir()) if folder.is_dir() else []
    if len(inside) == 1 and inside[0].is_dir():
        lifted = folder.with_name(f"{folder.name}.lifted")
        inside[0].rename(lifted)
        folder.rmdir()
        lifted.rename(folder)


def _provide(name: str) -> str:
    return f"provide the sources yourself: k8sdds bundle create {OPTION} {name}=FOLDER"


def clone(program: Program, report: Report) -> Path:
    """Return a folder in the cache with the files of a program's repository, which several programs may share.

    Raises:
        PrerequisiteError: The repository cannot be cloned, or its tag refers to another commit.
    """
    name, repository = program.source_name, _repository(program)
    if official.selected_source() == official.MODULES:
        raise PrerequisiteError(
            f"{official.VARIABLE}={official.MODULES} prevents cloning {repository.url}", _provide(name)
        )
    cloned = cache_folder() / "sources" / f"{name}-{repository.commit[:16]}"
    step = f"cloning {repository.url} {repository.tag}"
    return cache.folder(cloned, step, report, lambda unfinished: _clone(name, repository, unfinished))


def _clone(name: str, repository: Repository, folder: Path) -> None:
    """Clone the tag of a repository without its history into a new folder, and verify its commit."""
    folder.mkdir()
    provide = _provide(name)
    environment = {key: value for key, value in os.environ.items() if key not in _LOCATIONS}
    environment |= {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}

    def git(*argv: str) -> str:
        what = f"clone {repository.url}"
        done = programs.run(["git", "-C", folder, *argv], what, CLONE_TIMEOUT_S, provide, environment)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["git failed"])[-1]
            raise PrerequisiteError(f"cannot {what}: {reading.one_line(reason, 300)}", provide)
        return done.stdout.strip()

    git("init", "--quiet")
    git("fetch", "--quiet", "--depth=1", "--no-tags", repository.url, f"refs/tags/{repository.tag}")
    commit = git("rev-parse", "FETCH_HEAD^{commit}")
    if commit != repository.commit:
        raise PrerequisiteError(
            f"the tag {repository.tag} of {repository.url} refers to the commit {commit}, not to"
            f" {repository.commit}; nothing was built",
            f"the repository may have been changed; {provide}",
        )
    git("-c", "advice.detachedHead=false", "checkout", "--quiet", "--force", commit)
    shutil.rmtree(folder / ".git")
