"""The connections of one command to the machines of a profile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from k8sdds.system.errors import K8sddsError, PrerequisiteError
from k8sdds.system.ssh.errors import HostError
from k8sdds.system.ssh.host import Host
from k8sdds.system.ssh.target import Target

Result = TypeVar("Result")


class Connections:
    """A context with one connection per machine of a profile and per jump host, closed on exit."""

    def __init__(
        self, targets: Iterable[Target], accept_new_keys: bool = False, concurrency: int = 20
    ) -> None:
        self._jump_hosts = _JumpHosts(accept_new_keys)
        self.hosts = {target.name: Host(target, accept_new_keys, self._jump_hosts.find) for target in targets}
        self._concurrency = concurrency

    def __enter__(self) -> Connections:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        # Machines before their jump hosts.
        for host in (*self.hosts.values(), *self._jump_hosts.all()):
            host.end()

    def each(
        self, work: Callable[[Host], Result], names: Iterable[str]
    ) -> tuple[dict[str, Result], dict[str, K8sddsError]]:
        """Run `work` on these machines in parallel; return the results and the failures, by machine name."""
        selected = list(names)
        results: dict[str, Result] = {}
        failures: dict[str, K8sddsError] = {}
        with ThreadPoolExecutor(max_workers=max(1, min(self._concurrency, len(selected)))) as pool:
            futures = {name: pool.submit(work, self.hosts[name]) for name in selected}
            try:
                for name, future in futures.items():
                    try:
                        results[name] = future.result()
                    except K8sddsError as error:
                        failures[name] = error
            except BaseException:
                # Ctrl-C: the scripts that run must not delay the end of the command.
                self._end()
                raise
        return results, failures

    def all(self, work: Callable[[Host], Result], names: Iterable[str]) -> dict[str, Result]:
        """Run `work` on these machines in parallel and return the results, by machine name.

        Raises:
            K8sddsError: The failure, if exactly one machine failed.
            PrerequisiteError: Several machines failed; contains all messages.
        """
        results, failures = self.each(work, names)
        if len(failures) == 1:
            raise next(iter(failures.values()))
        if failures:
            raise PrerequisiteError("\n".join(str(error) for error in failures.values()))
        return results


class _JumpHosts:
    """The jump hosts of all machines. Machines with the same jump hosts share their connections."""

    def __init__(self, accept_new_keys: bool) -> None:
        self._accept_new_keys = accept_new_keys
        self._lock = threading.Lock()
        # Guarded by _lock: jump hosts and their chains, by the chain of hosts that need them.
        self._hosts: dict[tuple[str, Path | None, tuple[str, ...]], Host] = {}
        self._chains: dict[Host, tuple[str, ...]] = {}

    def find(self, jump_hosts: str, host: Host) -> Host:
        """Return the last of the jump hosts that ssh_config names for a machine or another jump host.

        Raises:
            HostError: The jump hosts need each other.
        """
        config = host.target.ssh_config
        with self._lock:
            chain = self._chains.get(host, ())
            if jump_hosts in chain:
                raise HostError(host.name, f"its jump host {jump_hosts} needs itself", "correct ssh_config")
            key = jump_hosts, config, chain
            if key not in self._hosts:
                target = Target.of_jump_hosts(jump_hosts, config)
                self._hosts[key] = Host(target, self._accept_new_keys, self.find)
                self._chains[self._hosts[key]] = (*chain, jump_hosts)
            return self._hosts[key]

    def all(self) -> list[Host]:
        """Return the jump hosts in the order in which their connections can be closed."""
        with self._lock:
            return sorted(self._hosts.values(), key=lambda host: len(self._chains[host]))
