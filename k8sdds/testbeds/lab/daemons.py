"""Run a network's daemons on its nodes: write their files and keys, start them, establish tunnels."""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from string import Template

from k8sdds.networks.common import strongswan
from k8sdds.networks.datapath import Batch, Daemon, Datapath, File
from k8sdds.system import processes
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.grouping import grouped
from k8sdds.system.sandbox import Sandbox

PSK_BYTES = strongswan.MIN_PSK_CHARACTERS // 2
"""Length of a generated key, which is written as two hexadecimal characters per byte."""
READY_TIMEOUT_S = 10
READY_POLL_S = 0.02
COMMAND_TIMEOUT_S = 30
WORKERS = 4
MAX_OUTPUT_CHARACTERS = 400
"""How much of the output of a tool or daemon an error message contains."""


class Keys(dict[str, str]):
    """The keys of one lab network, each generated when it is first used and stored only here.

    `psk` is a pre-shared key, by default the user's; `private_X` and `public_X` are a WireGuard key pair of
    node X.
    """

    def __missing__(self, name: str) -> str:
        kind, _, owner = name.partition("_")
        if name == "psk":
            key = secrets.token_hex(PSK_BYTES)
        elif kind == "private" and owner:
            key = _wg("genkey")
        elif kind == "public" and owner:
            key = _wg("pubkey", self[f"private_{owner}"])
        else:
            raise KeyError(name)
        return self.setdefault(name, key)


def _wg(command: str, stdin: str = "") -> str:
    done = subprocess.run(
        ["wg", command], input=stdin, capture_output=True, text=True, timeout=10, check=True
    )
    return done.stdout.strip()


def write_files(sandbox: Sandbox, files: Sequence[File], psk: str | None) -> None:
    """Write files with keys in place of their placeholders, mode 0600; without the user's `psk`, with a new one."""
    keys = Keys() if psk is None else Keys(psk=psk)
    for file in files:
        path = sandbox.path(file.path)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, "w", encoding="utf-8") as stream:
            stream.write(Template(file.text).substitute(keys))


def start(sandbox: Sandbox, daemons: Sequence[Daemon]) -> dict[str, int]:
    """Start all daemons, which end with the sandbox; return the process ids by namespace when each is ready."""
    started = [_start(sandbox, daemon) for daemon in daemons]
    with ThreadPoolExecutor(WORKERS) as pool:
        pids = list(pool.map(lambda pair: _await_ready(sandbox, *pair), zip(daemons, started, strict=True)))
    return {daemon.namespace: pid for daemon, pid in zip(daemons, pids, strict=True)}


def _start(sandbox: Sandbox, daemon: Daemon) -> subprocess.Popen[bytes]:
    environment = {"PATH": os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"}
    with sandbox.path(daemon.log).open("wb") as log:
        return subprocess.Popen(
            [*sandbox.enter(daemon.namespace), *daemon.argv],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**environment, **dict(daemon.environment)},
            start_new_session=True,
        )


def _await_ready(sandbox: Sandbox, daemon: Daemon, process: subprocess.Popen[bytes]) -> int:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while True:
        probe = _run(sandbox, daemon.namespace, daemon.ready)
        if not probe.returncode:
            break
        if process.poll() is not None:
            processes.require_not_stopped(process.returncode, _name(sandbox, daemon))
        if process.returncode is not None or time.monotonic() > deadline:
            output = " ".join(f"{probe.stdout} {probe.stderr}".split())[-MAX_OUTPUT_CHARACTERS:]
            raise PrerequisiteError(
                f"{_name(sandbox, daemon)} is not ready: {output};"
                f" end of its log: {_end_of_log(sandbox.path(daemon.log))}",
                "run: k8sdds doctor",
            )
        time.sleep(READY_POLL_S)
    # The process is nsenter; its child is the daemon.
    pid = processes.descendant(process.pid, 1)
    if pid is None:
        processes.require_not_stopped(process.wait(COMMAND_TIMEOUT_S), _name(sandbox, daemon))
        raise PrerequisiteError(f"{_name(sandbox, daemon)} has ended")
    return pid


def _name(sandbox: Sandbox, daemon: Daemon) -> str:
    return f"{sandbox.name}: {daemon.argv[0]} on {daemon.namespace}"


def _end_of_log(log: Path) -> str:
    try:
        return " ".join(log.read_text(errors="replace").split())[-MAX_OUTPUT_CHARACTERS:] or "(empty)"
    except OSError:
        return "(no log)"


def _run(sandbox: Sandbox, namespace: str, argv: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*sandbox.enter(namespace), *argv],
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        start_new_session=True,
    )


def establish_tunnels(sandbox: Sandbox, datapath: Datapath, tunnels: Sequence[Batch]) -> None:
    """Run the commands that follow the daemons, in parallel for all namespaces and in order within each."""

    def run(batches: list[Batch]) -> None:
        for batch in batches:
            for line in batch.lines:
                tool = (batch.tool, "-n", batch.namespace) if batch.tool == "ip" else (batch.tool,)
                _run_line(sandbox, datapath, batch.namespace, (*tool, *shlex.split(line)))

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(run, grouped(tunnels, lambda batch: batch.namespace).values()))


def _run_line(sandbox: Sandbox, datapath: Datapath, namespace: str, argv: tuple[str, ...]) -> None:
    try:
        # `ip -n` enters the namespace itself, from the sandbox's initial network namespace.
        done = _run(sandbox, "" if argv[0] == "ip" else namespace, argv)
        # swanctl prints a line for every optional plugin that is not installed.
        lines = [
            line for line in f"{done.stdout}\n{done.stderr}".splitlines() if "failed to load" not in line
        ]
        output = "\n".join(lines)
        if not done.returncode:
            return
        processes.require_not_killed(done.returncode, f"{sandbox.name}, {namespace}: `{shlex.join(argv)}`")
    except subprocess.TimeoutExpired:
        output = f"timed out after {COMMAND_TIMEOUT_S} s"
    for hint in datapath.error_hints:
        if hint.phrase in output:
            raise PrerequisiteError(f"{sandbox.name}, {namespace}: {hint.cause}", hint.remedy)
    raise PrerequisiteError(
        f"{sandbox.name}, {namespace}: `{shlex.join(argv)}` failed:"
        f" {' '.join(output.split())[-MAX_OUTPUT_CHARACTERS:]}",
        "run: k8sdds doctor",
    )


def pin(pids: dict[str, int], cores: dict[str, tuple[int, ...]]) -> None:
    """Pin all threads of each node's daemon to the node's cores; without cores, allow all cores."""
    for node, pid in pids.items():
        allowed = set(cores.get(node) or range(os.cpu_count() or 1))
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(int(thread.name), allowed)
