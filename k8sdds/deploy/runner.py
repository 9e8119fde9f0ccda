"""Apply the actions of a plan. `Runner.run` makes every change of a machine, logs it and explains failures."""

from __future__ import annotations

import contextlib
import re
import shlex
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from k8sdds.deploy import images
from k8sdds.deploy.actions import HASHES, PRELUDE, PRIVATE, Action, PrivateFile, Step, Upload
from k8sdds.deploy.software import Software
from k8sdds.system.errors import K8sddsError, PrerequisiteError
from k8sdds.system.ssh import Connections, Host, HostError, ScriptResult

# Logs should not contain secrets in the first place; this removes those that a program prints nevertheless.
_SECRETS = re.compile(
    r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----|"
    r"(?<=client-key-data: )\S+",
    re.DOTALL,
)
MAX_LINES = 12
"""Lines of a failed command's output that its error message quotes; the log contains all."""
RETRY = "then run the same command again: it continues where it stopped"


class Observer(Protocol):
    """Receive the progress of a plan, from several threads."""

    def started(self, action: Action) -> None:
        """Handle the start of an action on its node."""

    def ended(self, action: Action, seconds: float, error: Exception | None) -> None:
        """Handle the end of an action; `error` is None if it succeeded."""


class ActionFailed(PrerequisiteError):
    """A command failed on a machine."""


def redact(text: str) -> str:
    """Return a text in which bootstrap tokens and private keys are replaced."""
    return _SECRETS.sub("******", text)


@dataclass
class ActionLog:
    """One log file per node with the output of all actions, readable by this user only."""

    folder: Path

    def path(self, node: str) -> Path:
        """Return the log file of a node."""
        return self.folder / f"{node}.log"

    def write(self, action: Action, done: ScriptResult, seconds: float) -> None:
        """Append the output of an action."""
        at = datetime.now(UTC).isoformat(timespec="seconds")
        parts = [f"=== {at} {action.phase}: {action.title} ({seconds:.1f} s, exit code {done.code})"]
        parts += [part for part in (done.out.rstrip(), done.err.rstrip()) if part]
        path = self.path(action.node)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
        with path.open("a") as file:
            file.write(redact("\n".join(parts)) + "\n")


class Runner:
    """Apply actions: those of one node in order, the nodes in parallel."""

    def __init__(
        self, connections: Connections, log_folder: Path, observer: Observer, software: Software | None = None
    ) -> None:
        """Prepare to apply actions.

        Args:
            connections: The machines.
            log_folder: Where the logs are written.
            observer: Receives the progress.
            software: Where images come from; None if no action imports images.
        """
        self.connections = connections
        self._software = software
        self._log = ActionLog(log_folder)
        self._observer = observer
        self._changed = threading.Condition()
        # Guarded by _changed: actions of each step that are not complete, and the first failure.
        self._pending: dict[Step, int] = {}
        self._failure: Exception | None = None
        # Guarded by _fetching: secrets that a script on another node has printed.
        self._fetching = threading.Lock()
        self._fetched: dict[PrivateFile, bytes] = {}

    def apply(self, actions: Sequence[Action], apply_action: Callable[[Action], None] | None = None) -> None:
        """Apply all actions; an action waits for the steps on other nodes that it needs.

        When an action fails, running actions of other nodes are completed and no further ones start.

        Args:
            actions: The actions of all nodes.
            apply_action: Applies one action, by default with `run`.

        Raises:
            Exception: The first error of an action.
        """
        by_node: dict[str, list[Action]] = {}
        for action in actions:
            by_node.setdefault(action.node, []).append(action)
            step = action.node, action.phase
            self._pending[step] = self._pending.get(step, 0) + 1
        threads = [
            threading.Thread(
                target=self._apply_on_node, args=(on_node, apply_action or self.run), daemon=True
            )
            for on_node in by_node.values()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def _apply_on_node(self, actions: Sequence[Action], apply_action: Callable[[Action], None]) -> None:
        for action in actions:
            with self._changed:
                while self._failure is None and any(self._pending.get(step) for step in action.needs):
                    self._changed.wait()
                if self._failure is not None:
                    return
            self._observer.started(action)
            started_s = time.monotonic()
            error: Exception | None = None
            try:
                apply_action(action)
            except Exception as failure:  # raised again by apply, when all threads have ended
                error = failure
            self._observer.ended(action, time.monotonic() - started_s, error)
            with self._changed:
                self._failure = self._failure or error
                self._pending[action.node, action.phase] -= 1
                self._changed.notify_all()
            if error is not None:
                return

    def run(self, action: Action) -> None:
        """Run one action on its machine, and delete its secrets there.

        Raises:
            ActionFailed: A command failed, or the connection was lost.
        """
        host = self.connections.hosts[action.node]
        try:
            self._run(action, host)
        except Exception as error:
            if action.private:
                with contextlib.suppress(K8sddsError):
                    host.run(_delete_private(action), timeout_s=30)
            if isinstance(error, HostError):
                raise ActionFailed(
                    f"{action.node}: {action.phase}: could not {action.title}:\n    {error.message}",
                    f"{error.remedy}\n  → {RETRY}",
                ) from error
            raise

    def _run(self, action: Action, host: Host) -> None:
        started_s = time.monotonic()
        out: list[str] = []
        err: list[str] = []

        def check(done: ScriptResult) -> None:
            out.append(done.out)
            err.append(done.err)
            if done.code != 0:
                self._log.write(
                    action, ScriptResult(done.code, "".join(out), "".join(err)), time.monotonic() - started_s
                )
                raise self._failed(action, done)

        for secret in action.private:
            check(_send_private(host, secret, self._content(secret)))
        shared_scripts = [
            _install_script(upload, f"cp {shlex.quote(upload.shared)}")
            for upload in action.uploads
            if upload.shared
        ]
        if shared_scripts:
            check(host.run(PRELUDE + "".join(shared_scripts), timeout_s=action.timeout_s))
        for upload in action.uploads:
            if not upload.shared:
                script = PRELUDE + _install_script(upload, "cat >")
                check(host.send(upload.source, script, timeout_s=action.timeout_s))
        if action.images is not None:
            assert self._software is not None
            archive = self._software.archive(action.images)
            digests = action.images.digests
            check(images.load(host, archive.source, archive.shared, action.timeout_s, digests))
        if action.script:
            # The script deletes its secrets itself: it runs to its end even if this process is killed.
            cleanup = f"trap '{_delete_private(action)}' EXIT\n" if action.private else ""
            check(host.run(PRELUDE + cleanup + action.script, timeout_s=action.timeout_s))
        self._log.write(action, ScriptResult(0, "".join(out), "".join(err)), time.monotonic() - started_s)

    def _content(self, secret: PrivateFile) -> bytes:
        if not secret.node:
            return secret.content
        with self._fetching:
            if secret not in self._fetched:
                done = self.connections.hosts[secret.node].run(PRELUDE + secret.script, timeout_s=60)
                if done.code != 0:
                    raise ActionFailed(
                        f"{secret.node}: cannot create the credentials to join: {_last_lines(done.err)}",
                        "run the same command again",
                    )
                self._fetched[secret] = done.out.encode()
            return self._fetched[secret]

    def _failed(self, action: Action, done: ScriptResult) -> ActionFailed:
        output = redact(_last_lines(done.err) or _last_lines(done.out)) or "no output"
        log = f"complete output: {self._log.path(action.node)}"
        return ActionFailed(
            f"{action.node}: {action.phase}: could not {action.title} (exit code {done.code}):\n"
            + _indented(output),
            f"{action.remedy}; {log}\n  → {RETRY}" if action.remedy else f"{log}\n  → {RETRY}",
        )


def _send_private(host: Host, secret: PrivateFile, content: bytes) -> ScriptResult:
    path = shlex.quote(secret.path)
    return host.send(content, f"umask 077; mkdir -p {PRIVATE} && cat >{path}", timeout_s=60)


def _delete_private(action: Action) -> str:
    paths = " ".join(secret.path for secret in action.private)
    return f"rm -f {paths}; rmdir {PRIVATE} 2>/dev/null || :"


def _install_script(upload: Upload, fetch: str) -> str:
    """Return a script that installs a file. `fetch` is a command that writes it to the path appended to it."""
    target, new = shlex.quote(upload.target), shlex.quote(f"{upload.target}.k8sdds")
    return (
        f"keep {target}; mkdir -p {shlex.quote(upload.target.rpartition('/')[0])}\n{fetch} {new}\n"
        f'[ "$(sha256sum <{new} | cut -c1-64)" = {upload.sha256} ] ||'
        f" {{ rm -f {new}; echo {target} was damaged in transit >&2; exit 1; }}\n"
        f"chmod {upload.mode} {new}; mv -f {new} {target}\n"
        f"{{ grep -v '^{upload.target} ' {HASHES} 2>/dev/null || :;"
        f" echo \"$(stat -L --format '%n %i %s %.9Y %.9Z' {target}) {upload.sha256}\"; }} >{HASHES}.new\n"
        f"mv -f {HASHES}.new {HASHES}\n"
    )


def _last_lines(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-MAX_LINES:])


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
