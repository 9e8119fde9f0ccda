"""Turn faults of the environment, such as a full disk, into errors that users see.

Code that reads and writes files lets OSError and MemoryError pass. `explain` maps them at the end of a command, or
of a campaign, to what failed, where, how to fix it, and an exit code. `explained` does the same for code that knows
a better remedy, such as the option that names another folder.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

from k8sdds.system.errors import InputError, K8sddsError, PrerequisiteError
from k8sdds.system.paths import CHECKOUT

PATH_REMEDIES = {
    errno.EACCES: "check its owner and its permissions, and those of its folders: ls -ld {path}",
    errno.EPERM: "check its owner and its attributes: lsattr -d {path}",
    errno.EROFS: "make its file system writable, or use another folder",
    errno.ENOENT: "check its name; another program may have deleted it",
    errno.ENOTDIR: "use another path: a part of it is not a folder",
    errno.EISDIR: "name a file instead of a folder",
    errno.EEXIST: "use another path, or move what is there",
    errno.ENOTEMPTY: "use another folder, or move what is there",
    errno.ENAMETOOLONG: "use a shorter name",
    errno.ELOOP: "use a path without a loop of symbolic links",
}
"""Error numbers of a path that cannot be used as it was named, and the fix."""

RESOURCE_REMEDIES = {
    errno.ENOSPC: "free space on its file system (df -h; df -i), or use a folder on another one",
    errno.EDQUOT: "free space within your quota (quota -s), or use a folder on another file system",
    errno.EFBIG: "raise the limit of file sizes: ulimit -f",
    errno.EIO: "check the device and its cable: dmesg",
    errno.EMFILE: "raise the limit of open files: ulimit -n 1024",
    errno.ENOMEM: "stop other programs, add memory or swap, or raise the limit: ulimit -v",
    errno.EAGAIN: "stop other programs, or raise the limit of processes: ulimit -u",
}
"""Error numbers of an exhausted or broken resource of this machine, and the fix."""

DEFECTS = (errno.EBADF, errno.EINVAL)
"""Error numbers of calls with wrong arguments, which are defects of k8sdds."""

EXTRAS = {
    "artifact": ("archives", ("rocrate",)),
    "cluster": ("clusters", ("kubernetes", "fabric", "paramiko", "urllib3", "websocket", "yaml")),
    "parquet": ("Parquet files", ("pyarrow",)),
    "recording": ("recordings", ("lz4", "zstandard")),
    "report": ("static figures", ("matplotlib", "seaborn")),
}
"""The optional dependencies in pyproject.toml: what requires each, and the modules that come with it."""

_LOADER_MESSAGES = (
    *(os.strerror(number) for number in RESOURCE_REMEDIES),
    "failed to map segment from shared object",
    "cannot allocate memory",
    "can't start new thread",
)
"""Parts of the messages of other exceptions that an exhausted resource causes."""


def explain(error: BaseException, what: str = "", remedy: str = "") -> K8sddsError | None:
    """Return the error that users see for a fault of the environment; None if the error is something else.

    An error that already explains its cause, a fault, is returned unchanged. `what` failed, such as `cannot write
    FOLDER`; by default the path of the exception. `remedy` is for a path that cannot be used, or a disk that is full.
    """
    if isinstance(error, K8sddsError):
        return error if isinstance(error.__cause__, OSError | MemoryError) else None
    for cause in _chain(error):
        fault = _explain_one(cause, what, remedy)
        # An error during the cleanup after an exhausted resource, such as in zipfile, is a consequence of it.
        if fault is not None and (cause is error or is_resource(cause)):
            return fault
    return None


@contextlib.contextmanager
def explained(what: str, remedy: str = "") -> Iterator[None]:
    """Raise faults of the environment within a `with` block as errors that users see; see `explain`."""
    try:
        yield
    except (OSError, MemoryError, subprocess.TimeoutExpired) as error:
        fault = explain(error, what, remedy)
        if fault is None:
            raise
        raise fault from error


@contextlib.contextmanager
def naming(path: Path, temporary: Path | None = None) -> Iterator[None]:
    """Set the path of an OSError of a `with` block, unless it names another file than `path` or `temporary`.

    Calls on an open file, such as write, raise errors without a path. A temporary file is not what the user knows.
    """
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename in (None, str(temporary)):
            error.filename, error.filename2 = str(path), None
        raise


def not_installed(extra: str) -> PrerequisiteError | None:
    """Return the error for the first module of an extra that is not installed; None if all are."""
    _, modules = EXTRAS[extra]
    return next((missing_extra(name) for name in modules if find_spec(name) is None), None)


def missing_extra(module: str | None) -> PrerequisiteError | None:
    """Return the error for a module that is not installed; None if it belongs to no extra."""
    name = (module or "").partition(".")[0]
    for extra, (feature, modules) in EXTRAS.items():
        if name in modules:
            install = "make setup" if CHECKOUT else f"pip install 'k8sdds[{extra}]{_origin()}'"
            return PrerequisiteError(
                f"{feature} need the Python package {name}, which is not installed", f"run: {install}"
            )
    return None


def _origin() -> str:
    """Return ` @ URL` if k8sdds was installed from a path or a URL, where pip finds it again; otherwise empty."""
    with contextlib.suppress(PackageNotFoundError):
        origin = json.loads(distribution("k8sdds").read_text("direct_url.json") or "{}")
        if "url" in origin:
            kind = f"{origin['vcs_info']['vcs']}+" if "vcs_info" in origin else ""
            return f" @ {kind}{origin['url']}"
    return ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, what caused it, and during which other exceptions it was raised."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        yield current
        seen.add(id(current))
        current = current.__cause__ or current.__context__


def is_resource(error: BaseException) -> bool:
    """Return whether an exhausted or broken resource of this machine caused an exception."""
    if isinstance(error, OSError):
        return error.errno in RESOURCE_REMEDIES
    return isinstance(error, MemoryError) or _loader_message(error) is not None


def _explain_one(error: BaseException, what: str, remedy: str) -> K8sddsError | None:
    if isinstance(error, MemoryError):
        return PrerequisiteError(_about(what, "not enough memory"), RESOURCE_REMEDIES[errno.ENOMEM])
    if isinstance(error, subprocess.TimeoutExpired):
        command = " ".join(map(str, error.cmd)) if isinstance(error.cmd, list | tuple) else str(error.cmd)
        return PrerequisiteError(
            _about(what, f"`{command[:200]}` did not end within {error.timeout:.0f} s"),
            remedy or "stop what overloads this machine, and retry",
        )
    if isinstance(error, OSError):
        return _explain_os_error(error, what, remedy)
    if isinstance(error, ModuleNotFoundError):
        return missing_extra(error.name)
    if (line := _loader_message(error)) is not None:
        return PrerequisiteError(
            _about(what, line), "raise the limits of memory, files and processes: ulimit -a"
        )
    return None


def _explain_os_error(error: OSError, what: str, remedy: str) -> K8sddsError | None:
    number = error.errno
    if number in DEFECTS:
        return None
    path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else ""
    known = number in RESOURCE_REMEDIES or number in PATH_REMEDIES
    reason = os.strerror(number) if number and known else error.strerror or str(error) or type(error).__name__
    subject = ": ".join(dict.fromkeys(filter(None, (what, "" if path and path in what else path))))
    message = _about(subject, reason)
    if number in RESOURCE_REMEDIES:
        about_space = number in (errno.ENOSPC, errno.EDQUOT)
        return PrerequisiteError(message, (remedy if about_space else "") or RESOURCE_REMEDIES[number])
    if number in PATH_REMEDIES:
        if number == errno.ENOENT and _raised_by_subprocess(error):
            return PrerequisiteError(
                _about(what, f"the program {path} is not installed"), remedy or "run: k8sdds doctor"
            )
        if path.startswith("/proc/"):
            return PrerequisiteError(
                f"{message}: the process has ended", "retry; remove leftovers: k8sdds clean"
            )
        return InputError(message, remedy or PATH_REMEDIES[number].format(path=path or "PATH"))
    return PrerequisiteError(message, remedy or "for the cause, run the command again with --verbose")


def _loader_message(error: BaseException) -> str | None:
    """Return the line of a message that an exhausted resource causes. Some packages add advice about installations."""
    if not isinstance(error, ImportError | RuntimeError):
        return None
    lines = str(error).splitlines()
    return next((line.strip() for line in lines if any(text in line for text in _LOADER_MESSAGES)), None)


def _about(subject: str, reason: str) -> str:
    return f"{subject}: {reason}" if subject else reason


def _raised_by_subprocess(error: OSError) -> bool:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_filename == subprocess.__file__
