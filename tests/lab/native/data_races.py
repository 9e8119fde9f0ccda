"""Read the reports of ThreadSanitizer, and leave out those of no defect of ours: about libraries that are built without it,
and about a socket that is connected while another thread receives from it."""

from __future__ import annotations

import re
from pathlib import Path

LIBRARIES = re.compile(r"\(lib(ddsc|fastrtps|fastdds|fastcdr)\.so")
"""ThreadSanitizer sees only their calls of the C library, not how their threads synchronize otherwise."""
_RECEIVE_LOCK = "k8sdds::ReceiveLock::ReceiveLock"
"""Taken in a listener of Fast DDS, before `take` locks the reader's mutex. ThreadSanitizer reports a cycle of both within
one thread: it does not see the locks with a timeout by which the library already holds this recursive mutex."""
_LOCKING_THREAD = re.compile(r"^  Mutex M\d+ acquired here while holding mutex M\d+ in (.*):$", re.MULTILINE)
_REPLACED = re.compile(r"\((libtsan|libstdc\+\+)\.so|#\d+ (__gthread_|std::)")
"""Functions that act for their caller, such as `memcpy`."""
_REPORT = re.compile(r"^WARNING: ThreadSanitizer: .*?(?=^={18}$)", re.MULTILINE | re.DOTALL)
_CREATION = re.compile(r"^  (Location|Mutex M\d+ \(|Thread T)", re.MULTILINE)
"""Begins a part that shows where memory, a lock or a thread was created."""
_FRAME = re.compile(r"^    #\d+ .*$", re.MULTILINE)
_CONNECTED = re.compile(r"^    #0 connect (?s:.*)^  Location is file descriptor", re.MULTILINE)
"""ThreadSanitizer takes `connect` for the creation of the socket; the kernel lets a thread receive from it meanwhile."""


def reports(folder: Path) -> list[str]:
    """Return the reports in the logs of a folder, except those about libraries and connected sockets."""
    text = "\n".join(path.read_text(errors="replace") for path in sorted(folder.iterdir()))
    found = _REPORT.findall(text)
    return [report for report in found if not (is_about_library(report) or _CONNECTED.search(report))]


def is_about_library(report: str) -> bool:
    """Return whether a library makes one of the accesses of a data race, or does all that another report is about.

    A callback that a library calls is not the library. A cycle of one of our locks and a library's is our defect,
    except that of _RECEIVE_LOCK within one thread.
    """
    title = report.splitlines()[0]
    callers = [
        _caller(part) for part in report.split("\n\n") if _FRAME.search(part) and not _CREATION.search(part)
    ]
    if len(set(_LOCKING_THREAD.findall(report))) == 1:
        callers = [caller for caller in callers if _RECEIVE_LOCK not in caller]
    by_library = [LIBRARIES.search(caller) is not None for caller in callers]
    if "data race" in title:
        return any(by_library)
    return bool(by_library) and all(by_library)


def _caller(stack: str) -> str:
    """Return the first frame that is not of a function that acts for its caller."""
    frames = _FRAME.findall(stack)
    return next((frame for frame in frames if not _REPLACED.search(frame)), "")
