"""Carry out a plan: every change of a machine goes through `_do`, which logs it and fails with a remedy."""

from __future__ import annotations

import contextlib
import re
import shlex
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from k8sdds.deploy import images
from k8sdds.deploy.actions import HASHES, PRELUDE, PRIVATE, Action, Private, Step, Upload
from k8sdds.deploy.software import Software
from k8sdds.system.errors import K8sddsError, PrerequisiteError
from k8sdds.system.ssh import Connections, Done, Host, HostError

# A second line of defence: nothing that is logged should have one.
_SECRETS = re.compile(
    r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----|"
    r"(?<=client-key-data: )\S+",
    re.DOTALL,
)
LAST_LINES = 12
"""Of a failed command, in the message; the log has all."""
AGAIN = "then run the same command again: it goes on where it ended"


class Observer(Protocol):
    """Who is told what happens, from several threads."""

    def started(self, action: Action) -> None:
        """An action begins on its node."""

    def ended(self, action: Action, seconds: float, error: Exception | None) -> None:
        """It has ended, well or not."""


class ActionFailed(PrerequisiteError):
    """A command on a machine that failed."""


def hidden(text: str) -> str:
    """A text without what looks like a bootstrap token or a private key."""
    return _SECRETS.sub("******", text)


@dataclass
class Log:
    """One file per node with all that was done, for this user alone."""

    folder: Path

    def path(self, node: str) -> Path:
        """The file of a node."""
        return self.folder / f"{node}.log"

    def write(self, action: Action, done: Done, seconds: float) -> None:
        """Add what an action did."""
        at = datetime.now(UTC).isoformat(timespec="seconds")
        parts = [f"=== {at} {action.phase}: {action.title} ({seconds:.1f} s, exit code {done.code})"]
        parts += [part for part in (done.out.rstrip(), done.err.rstrip()) if part]
        path = self.path(action.node)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
        with path.open("a") as file:
            file.write(hidden("\n".join(parts)) + "\n")


@dataclass
class _Run:
    connections: Connections
    software: Software | None
    secrets: Mapping[str, bytes]
    log: Log
    observer: Observer
    changed: threading.Condition = field(default_factory=threading.Condition)
    left: dict[Step, int] = field(default_factory=dict)
    """Actions of a step that have not ended."""
    failure: Exception | None = None
    fetched: dict[Private, bytes] = field(default_factory=dict)
    fetching: threading.Lock = field(default_factory=threading.Lock)

    def node(self, actions: Sequence[Action]) -> None:
        """All actions of one node, in order; ends early where another node failed."""
        for action in actions:
            with self.changed:
                self.changed.wait_for(
                    lambda action=action: (
                        self.failure or not any(self.left.get(step) for step in action.needs)
                    )
                )
                if self.failure:
                    return
            self.observer.started(action)
            began = time.monotonic()
            error: Exception | None = None
            try:
                self._do(action)
            except Exception as found:  # raised again where all threads have ended
                error = found
            self.observer.ended(action, time.monotonic() - began, error)
            with self.changed:
                self.failure = self.failure or error
                self.left[action.node, action.phase] -= 1
                self.changed.notify_all()
            if error is not None:
                return

    def _do(self, action: Action) -> None:
        """Change a machine, and leave no secret on it."""
        host = self.connections.hosts[action.node]
        try:
            self._carry_out(action, host)
        except Exception as error:
            if action.private:
                with contextlib.suppress(K8sddsError):
                    host.run(_without_private(action), timeout_s=30)
            if isinstance(error, HostError):
                raise ActionFailed(
                    f"{action.node}: {action.phase}: could not {action.title}:\n    {error.message}",
                    f"{error.remedy}\n  → {AGAIN}",
                ) from error
            raise

    def _carry_out(self, action: Action, host: Host) -> None:
        began = time.monotonic()
        out: list[str] = []
        err: list[str] = []

        def step(done: Done) -> None:
            out.append(done.out)
            err.append(done.err)
            if done.code != 0:
                whole = Done(done.code, "".join(out), "".join(err))
                self.log.write(action, whole, time.monotonic() - began)
                raise self._failed(action, done)

        for secret in action.private:
            step(_put_private(host, secret, self._secret(secret)))
        here = [_installed(one, f"cp {shlex.quote(one.shared)}") for one in action.uploads if one.shared]
        if here:
            step(host.run(PRELUDE + "".join(here), timeout_s=action.timeout_s))
        for upload in action.uploads:
            if not upload.shared:
                script = PRELUDE + _installed(upload, "cat >")
                step(host.send(upload.source, script, timeout_s=action.timeout_s))
        if action.images is not None:
            assert self.software is not None
            archive = self.software.archive(action.images)
            digests = action.images.digests
            step(images.load(host, archive.source, archive.shared, action.timeout_s, digests))
        if action.script:
            # By the script itself: it goes on to its end where this process is killed.
            forget = f"trap '{_without_private(action)}' EXIT\n" if action.private else ""
            step(host.run(PRELUDE + forget + action.script, timeout_s=action.timeout_s))
        self.log.write(action, Done(0, "".join(out), "".join(err)), time.monotonic() - began)

    def _secret(self, secret: Private) -> bytes:
        if not secret.node:
            return self.secrets[secret.name]
        with self.fetching:
            if secret not in self.fetched:
                done = self.connections.hosts[secret.node].run(PRELUDE + secret.script, timeout_s=60)
                if done.code != 0:
                    raise ActionFailed(
                        f"{secret.node}: what other machines need to join was not given: {_last(done.err)}",
                        "run the same command again",
                    )
                self.fetched[secret] = done.out.encode()
            return self.fetched[secret]

    def _failed(self, action: Action, done: Done) -> ActionFailed:
        said = hidden(_last(done.err) or _last(done.out)) or "it said nothing"
        remedy = f"{action.remedy}; all it said: {self.log.path(action.node)}" if action.remedy else (
            f"all it said: {self.log.path(action.node)}"
        )  # fmt: skip
        return ActionFailed(
            f"{action.node}: {action.phase}: could not {action.title} (exit code {done.code}):\n"
            + _indented(said),
            f"{remedy}\n  → {AGAIN}",
        )


def apply(
    actions: Sequence[Action],
    connections: Connections,
    log_folder: Path,
    observer: Observer,
    software: Software | None = None,
    secrets: Mapping[str, bytes] | None = None,
) -> None:
    """Carry out all actions: each node's in order, the nodes side by side, waiting where one needs another.

    Raises the first error; what other nodes were doing then is ended in order, and nothing more is begun.
    """
    run = _Run(connections, software, secrets or {}, Log(log_folder), observer)
    by_node: dict[str, list[Action]] = {}
    for action in actions:
        by_node.setdefault(action.node, []).append(action)
        run.left[action.node, action.phase] = run.left.get((action.node, action.phase), 0) + 1
    threads = [threading.Thread(target=run.node, args=(chosen,), daemon=True) for chosen in by_node.values()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if run.failure is not None:
        raise run.failure


def _put_private(host: Host, secret: Private, content: bytes) -> Done:
    path = shlex.quote(secret.path)
    return host.send(content, f"umask 077; mkdir -p {PRIVATE} && cat >{path}", timeout_s=60)


def _without_private(action: Action) -> str:
    paths = " ".join(secret.path for secret in action.private)
    return f"rm -f {paths}; rmdir {PRIVATE} 2>/dev/null || :"


def _installed(upload: Upload, fetch: str) -> str:
    """Shell words that install a file which `fetch` writes to the path that follows it."""
    target, new = shlex.quote(upload.target), shlex.quote(f"{upload.target}.k8sdds")
    return (
        f"keep {target}; mkdir -p {shlex.quote(upload.target.rpartition('/')[0])}\n{fetch} {new}\n"
        f'[ "$(sha256sum <{new} | cut -c1-64)" = {upload.sha256} ] ||'
        f" {{ rm -f {new}; echo {target} arrived damaged >&2; exit 1; }}\n"
        f"chmod {upload.mode} {new}; mv -f {new} {target}\n"
        f"{{ grep -v '^{upload.target} ' {HASHES} 2>/dev/null || :;"
        f" echo \"$(stat -L --format '%n %i %s %.9Y %.9Z' {target}) {upload.sha256}\"; }} >{HASHES}.new\n"
        f"mv -f {HASHES}.new {HASHES}\n"
    )


def _last(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-LAST_LINES:])


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
