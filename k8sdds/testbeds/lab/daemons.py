"""What a network runs on its nodes: files with keys, daemons, and the commands that bring tunnels up."""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import subprocess
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from string import Template

from k8sdds.networks.common import strongswan
from k8sdds.networks.datapath import Batch, Daemon, Datapath, File
from k8sdds.system import processes
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.sandbox import Sandbox

PSK_BYTES = strongswan.MIN_PSK_CHARACTERS // 2
"""Two hexadecimal characters per byte."""
READY_TIMEOUT_S = 10
READY_POLL_S = 0.02
COMMAND_TIMEOUT_S = 30
WORKERS = 4
SAID = 400
"""Characters of a tool's or daemon's last words in an error."""


class Keys(Mapping[str, str]):
    """The keys of one bench, each made when first asked for and kept nowhere else.

    `psk` is a pre-shared key, the user's own if there is one; `private_X` and `public_X` are a WireGuard key
    pair of X.
    """

    def __init__(self, psk: str | None = None) -> None:
        self._made: dict[str, str] = {} if psk is None else {"psk": psk}

    def __getitem__(self, name: str) -> str:
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def _make(self, name: str) -> str:
        kind, _, owner = name.partition("_")
        if name == "psk":
            return secrets.token_hex(PSK_BYTES)
        if kind == "private" and owner:
            return _wg("genkey")
        if kind == "public" and owner:
            return _wg("pubkey", self[f"private_{owner}"])
        raise KeyError(name)

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


def _wg(word: str, stdin: str = "") -> str:
    done = subprocess.run(["wg", word], input=stdin, capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()


def write_files(sandbox: Sandbox, files: tuple[File, ...], psk: str | None = None) -> None:
    """Write a network's files with the bench's keys, mode 0600. `psk`: the user's own pre-shared key."""
    keys = Keys(psk)
    for file in files:
        path = sandbox.path(file.path)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, "w", encoding="utf-8") as stream:
            stream.write(Template(file.text).substitute(keys))


def start(sandbox: Sandbox, daemons: tuple[Daemon, ...]) -> dict[str, int]:
    """Start all daemons and wait until each is ready; returns namespace → id of the daemon's process.

    They end with the sandbox.
    """
    started = [_start(sandbox, daemon) for daemon in daemons]
    with ThreadPoolExecutor(WORKERS) as pool:
        found = list(pool.map(lambda pair: _await(sandbox, *pair), zip(daemons, started, strict=True)))
    return {daemon.namespace: pid for daemon, pid in zip(daemons, found, strict=True)}


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


def _await(sandbox: Sandbox, daemon: Daemon, process: subprocess.Popen[bytes]) -> int:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while True:
        asked = _run(sandbox, daemon.namespace, daemon.ready)
        if not asked.returncode:
            break
        if process.poll() is not None or time.monotonic() > deadline:
            said = " ".join(f"{asked.stdout} {asked.stderr}".split())[-SAID:]
            raise PrerequisiteError(
                f"{sandbox.name}: {daemon.argv[0]} on {daemon.namespace} does not serve: {said};"
                f" its log ends: {_last_words(sandbox.path(daemon.log))}",
                "see: k8sdds doctor",
            )
        time.sleep(READY_POLL_S)
    # nsenter's child is the daemon itself.
    pid = processes.descendant(process.pid, 1)
    if pid is None:
        raise PrerequisiteError(f"{sandbox.name}: {daemon.argv[0]} on {daemon.namespace} has ended")
    return pid


def _last_words(log: Path) -> str:
    try:
        return " ".join(log.read_text(errors="replace").split())[-SAID:] or "(empty)"
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


def finish(sandbox: Sandbox, datapath: Datapath) -> None:
    """Run the commands that follow the daemons: namespaces side by side, in order within each.

    A PrerequisiteError says what a failure means where the network knows.
    """
    by_namespace: dict[str, list[Batch]] = {}
    for batch in datapath.tunnels:
        by_namespace.setdefault(batch.namespace, []).append(batch)

    def run(batches: list[Batch]) -> None:
        for batch in batches:
            for line in batch.lines:
                words = (batch.tool, "-n", batch.namespace) if batch.tool == "ip" else (batch.tool,)
                _run_line(sandbox, datapath, batch.namespace, (*words, *shlex.split(line)))

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(run, by_namespace.values()))


def _run_line(sandbox: Sandbox, datapath: Datapath, namespace: str, argv: tuple[str, ...]) -> None:
    try:
        # `ip -n` enters by itself, from the sandbox's first network namespace.
        done = _run(sandbox, "" if argv[0] == "ip" else namespace, argv)
        # swanctl tells of each of its own plugins that it does without.
        lines = [
            line for line in f"{done.stdout}\n{done.stderr}".splitlines() if "failed to load" not in line
        ]
        said = "\n".join(lines)
        if not done.returncode:
            return
    except subprocess.TimeoutExpired:
        said = f"no answer in {COMMAND_TIMEOUT_S} s"
    for hint in datapath.error_hints:
        if hint.phrase in said:
            raise PrerequisiteError(f"{sandbox.name}, {namespace}: {hint.cause}", hint.remedy)
    raise PrerequisiteError(
        f"{sandbox.name}, {namespace}: `{shlex.join(argv)}` failed: {' '.join(said.split())[-SAID:]}",
        "see: k8sdds doctor",
    )


def pin(pids: dict[str, int], cores: dict[str, tuple[int, ...]]) -> None:
    """Let each node's daemon, all its threads, run on the cores of the node; without cores, on all."""
    for node, pid in pids.items():
        wanted = set(cores.get(node) or range(os.cpu_count() or 1))
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(int(thread.name), wanted)


def cpu_s(pids: dict[str, int]) -> tuple[float, float]:
    """CPU time of the daemons so far: (user, system) in seconds."""
    user = system = 0
    for pid in pids.values():
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            user, system = user + int(fields[11]), system + int(fields[12])
    ticks = os.sysconf("SC_CLK_TCK")
    return user / ticks, system / ticks
