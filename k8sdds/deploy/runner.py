"""Apply the actions of a plan. `Runner.run` makes every change of a machine, logs it and explains failures."""

from __future__ import annotations

import re
import shlex
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from k8sdds.deploy import images
from k8sdds.deploy.actions import HASHES, PRELUDE, PRIVATE, Action, PrivateFile, Step, Upload, here_document
from k8sdds.deploy.scripts import shell
from k8sdds.deploy.software import Software
from k8sdds.system import faults
from k8sdds.system.errors import K8sddsError, PrerequisiteError
from k8sdds.system.grouping import grouped, merge_by_node
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


class Runner:
    """Apply actions: those of one node in order, the nodes in parallel. One log file per node has their output."""

    def __init__(
        self, connections: Connections, logs: Path, observer: Observer, software: Software | None = None
    ) -> None:
        """Prepare to apply actions. `software` provides images; None if no action imports images."""
        self.connections = connections
        self._software = software
        self._logs = logs
        self._observer = observer
        self._changed = threading.Condition()
        # Guarded by _changed: actions of each step that are not complete, and nodes on which no more actions start.
        self._pending: Counter[Step] = Counter()
        self._ended: set[str] = set()
        # By node; each thread writes its own.
        self._failures: dict[str, Exception] = {}
        # Guarded by _fetching: secrets that a script on another node has printed, with the time at which they expire.
        self._fetching = threading.Lock()
        self._fetched: dict[PrivateFile, tuple[float, str]] = {}
        # Guarded by _fetching: failures of such scripts, and under their name, of nodes that do not answer.
        self._fetch_failures: dict[PrivateFile | str, K8sddsError] = {}

    def apply(self, actions: Sequence[Action], apply_action: Callable[[Action], None] | None = None) -> None:
        """Apply all actions, by default with `run`; an action waits for the steps on other nodes that it needs.

        When an action fails, no further ones of its node start, and none that need them; all others are applied.
        Raises the failures of all nodes at the end.
        """
        self._pending.update((action.node, action.phase) for action in actions)
        self._ended.clear()
        by_node = grouped(actions, lambda action: action.node)
        threads = [
            threading.Thread(
                target=self._apply_on_node, args=(node, own, apply_action or self.run), daemon=True
            )
            for node, own in by_node.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failures:
            raise self._failure()

    def _apply_on_node(
        self, node: str, actions: Sequence[Action], apply_action: Callable[[Action], None]
    ) -> None:
        try:
            for action in actions:
                if not self._can_start(action):
                    break
                self._apply_one(action, apply_action)
                with self._changed:
                    self._pending[node, action.phase] -= 1
                    self._changed.notify_all()
        except Exception as error:  # raised again by apply, when all threads have ended
            self._failures[node] = error
        with self._changed:
            self._ended.add(node)
            self._changed.notify_all()

    def _apply_one(self, action: Action, apply_action: Callable[[Action], None]) -> None:
        self._observer.started(action)
        started_s = time.monotonic()
        error: Exception | None = None
        try:
            apply_action(action)
        except Exception as failure:
            error = failure
            raise
        finally:
            self._observer.ended(action, time.monotonic() - started_s, error)

    def _can_start(self, action: Action) -> bool:
        """Wait for the steps that an action needs, and return whether all of them were completed."""
        with self._changed:
            while missing := [node for node, phase in action.needs if self._pending[node, phase]]:
                if self._ended.intersection(missing):
                    return False
                self._changed.wait()
        return True

    def _failure(self) -> Exception:
        """Return the failure of the only node that has one, or an error with the failures of all.

        A defect of k8sdds is returned unchanged; its note contains all failures.
        """
        if len(self._failures) == 1:
            return next(iter(self._failures.values()))
        errors = {node: faults.explain(error) or error for node, error in self._failures.items()}
        defects = [error for error in errors.values() if not isinstance(error, K8sddsError)]
        logs = str(self._log_file("NODE"))
        texts = [
            # Without what differs between nodes with the same failure.
            (
                node,
                (repr(error) if error in defects else str(error))
                .removeprefix(f"{node}: ")
                .replace(str(self._log_file(node)), logs),
            )
            for node, error in errors.items()
        ]
        message = "\n".join(merge_by_node(texts))
        if not defects:
            return ActionFailed(message)
        defects[0].add_note(message)
        return defects[0]

    def run(self, action: Action) -> None:
        """Run one action on its machine, and append its output to the log."""
        started_s = time.monotonic()
        done: list[ScriptResult] = []
        try:
            for result in self._commands(action, self.connections.hosts[action.node]):
                done.append(result)
                if result.code:
                    raise self._failed(action, result)
        except HostError as error:
            raise ActionFailed(
                f"{action.node}: {action.phase}: could not {action.title}:\n    {error.message}",
                f"{error.remedy}\n  → {RETRY}",
            ) from error
        finally:
            self._write_log(action, done, time.monotonic() - started_s)

    def _commands(self, action: Action, host: Host) -> Iterator[ScriptResult]:
        """Install the files, import the images, and run the script of an action, and yield each result."""
        shared = "".join(
            _install_script(upload, f"cp {shlex.quote(upload.shared)}")
            for upload in action.uploads
            if upload.shared
        )
        if shared:
            yield host.run(PRELUDE + shared, timeout_s=action.timeout_s)
        for upload in action.uploads:
            if not upload.shared:
                script = PRELUDE + _install_script(upload, "cat >")
                yield host.send(upload.source, script, timeout_s=action.timeout_s)
        if action.images:
            assert self._software is not None
            archive, on_node = self._software.archive(action.images)
            yield images.load(host, archive, action.images, on_node, action.timeout_s)
        if action.script:
            yield host.run(PRELUDE + self._private(action) + action.script, timeout_s=action.timeout_s)

    def _private(self, action: Action) -> str:
        """Return a script that writes the secrets of an action, and deletes them when the shell ends.

        The shell runs to its end even if this process is killed. Scripts are sent on stdin: no command line has them.
        """
        if not action.private:
            return ""
        paths = " ".join(secret.path for secret in action.private)
        script = f"trap 'rm -f {paths}; rmdir {PRIVATE} 2>/dev/null || :' EXIT\n"
        script += f"( umask 077; mkdir -p {PRIVATE} )\n"
        for secret in action.private:
            content = self._fetch(secret, action.timeout_s) if secret.node else secret.content
            script += f"( umask 077; cat >{secret.path} ) {here_document(content)}"
        return script

    def _fetch(self, secret: PrivateFile, for_s: float) -> str:
        """Return a secret that is valid for this time, so that an action can use it."""
        with self._fetching:
            expires_s, text = self._fetched.get(secret, (0.0, ""))
            now_s = time.monotonic()
            if expires_s < now_s + for_s:
                text = self._create(secret, for_s)
                self._fetched[secret] = now_s + secret.valid_s, text
            return text

    def _create(self, secret: PrivateFile, timeout_s: float) -> str:
        """Return what the script of a secret prints. Raises an earlier failure again, without a second attempt."""
        if failure := self._fetch_failures.get(secret) or self._fetch_failures.get(secret.node):
            raise failure
        try:
            # It waits for the end of an action of the other node.
            done = self.connections.hosts[secret.node].run(PRELUDE + secret.script, timeout_s=timeout_s)
        except HostError as error:
            self._fetch_failures[secret.node] = error
            raise
        if done.code != 0:
            self._fetch_failures[secret] = ActionFailed(
                f"{secret.node}: cannot create the credentials to join: {_last_lines(done.err)}",
                "run the same command again",
            )
            raise self._fetch_failures[secret]
        return done.out

    def _log_file(self, node: str) -> Path:
        return self._logs / f"{node}.log"

    def _write_log(self, action: Action, done: Sequence[ScriptResult], seconds: float) -> None:
        if not done:
            return
        at = datetime.now(UTC).isoformat(timespec="seconds")
        head = f"=== {at} {action.phase}: {action.title} ({seconds:.1f} s, exit code {done[-1].code})"
        output = [part.rstrip() for result in done for part in (result.out, result.err)]
        path = self._log_file(action.node)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
        with path.open("a") as file:
            file.write(redact("\n".join([head, *filter(None, output)])) + "\n")

    def _failed(self, action: Action, done: ScriptResult) -> ActionFailed:
        output = redact(_last_lines(done.err) or _last_lines(done.out)) or "no output"
        log = f"complete output: {self._log_file(action.node)}"
        return ActionFailed(
            f"{action.node}: {action.phase}: could not {action.title} (exit code {done.code}):\n"
            + textwrap.indent(output, "    "),
            f"{action.remedy}; {log}\n  → {RETRY}" if action.remedy else f"{log}\n  → {RETRY}",
        )


def _install_script(upload: Upload, fetch: str) -> str:
    """Return a script that installs a file. `fetch` is a command that writes it to the path appended to it."""
    paths = {
        "TARGET": upload.target,
        "FOLDER": upload.target.rpartition("/")[0],
        "NEW": f"{upload.target}.k8sdds",
    }
    quoted = {name: shlex.quote(path) for name, path in paths.items()}
    fixed = {"FETCH": fetch, "DIGEST": upload.sha256, "MODE": upload.mode, "HASHES": HASHES}
    return shell("install_file", **quoted, **fixed)


def _last_lines(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-MAX_LINES:])
