"""The machines of a profile, on which work runs in parallel."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from k8sdds.system.errors import K8sddsError, PrerequisiteError
from k8sdds.system.ssh.host import Host
from k8sdds.system.ssh.target import CHECK_S, END_S, HostError, Target

Result = TypeVar("Result")


class Connections:
    """A context with one connection per machine of a profile and per jump host, closed on exit."""

    def __init__(
        self, targets: Iterable[Target], accept_new_keys: bool = False, concurrency: int = 20
    ) -> None:
        self._accept_new_keys = accept_new_keys
        self._concurrency = concurrency
        self.hosts = {target.name: Host(target, accept_new_keys, self._jump_host) for target in targets}
        self._lock = threading.Lock()
        # Guarded by _lock. Machines with the same jump hosts share their connections.
        self._jump_hosts: dict[tuple[str, Path | None, tuple[str, ...]], Host] = {}

    def __enter__(self) -> Connections:
        return self

    def __exit__(self, *_: object) -> None:
        # Machines before their jump hosts, which are added later.
        for host in (*self.hosts.values(), *self._jump_hosts.values()):
            host.end()

    def _jump_host(self, jump_hosts: str, host: Host) -> Host | None:
        """Return the last of the jump hosts of a machine or of another jump host. Raises HostError."""
        target = Target.of_jump_hosts(jump_hosts, host.target.ssh_config)
        if target.alias == host.target.alias:
            return None  # A pattern such as `Host *` may make a jump host its own jump host.
        if jump_hosts in host.needed_by:
            raise HostError(host.name, f"its jump host {jump_hosts} needs itself", "correct ssh_config")
        key, needed_by = (jump_hosts, target.ssh_config, host.needed_by), (*host.needed_by, jump_hosts)
        with self._lock:
            if key not in self._jump_hosts:
                self._jump_hosts[key] = Host(target, self._accept_new_keys, self._jump_host, needed_by)
            return self._jump_hosts[key]

    def each(
        self, work: Callable[[Host], Result], names: Iterable[str]
    ) -> tuple[dict[str, Result], dict[str, K8sddsError]]:
        """Run `work` on these machines in parallel; return the results and the failures, by machine name."""
        selected = list(names)
        remaining = iter(selected)
        results: dict[str, Result] = {}
        errors: dict[str, Exception] = {}

        def serve() -> None:
            for name in remaining:
                try:
                    results[name] = work(self.hosts[name])
                except Exception as error:
                    errors[name] = error

        threads = [threading.Thread(target=serve, daemon=True) for _ in selected[: self._concurrency]]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():
                    thread.join(CHECK_S)
        except BaseException:
            # Ctrl-C: what runs must not delay the end of the command.
            self.__exit__()
            deadline_s = time.monotonic() + END_S
            # After Ctrl-C interrupts the start of a thread or the wait for it, is_alive() is false, although it runs.
            while set(threads) & set(threading.enumerate()) and time.monotonic() < deadline_s:
                time.sleep(0.01)
            raise
        failures = {}
        for name in filter(errors.__contains__, selected):
            if not isinstance(error := errors[name], K8sddsError):
                raise error
            failures[name] = error
        return {name: results[name] for name in selected if name in results}, failures

    def all(self, work: Callable[[Host], Result], names: Iterable[str]) -> dict[str, Result]:
        """Run `work` on these machines in parallel and return the results, by machine name.

        Raises the failure if exactly one machine failed, else a PrerequisiteError with all messages.
        """
        results, failures = self.each(work, names)
        if len(failures) == 1:
            raise next(iter(failures.values()))
        if failures:
            raise PrerequisiteError("\n".join(dict.fromkeys(map(str, failures.values()))))
        return results
