"""Connections of fabric, as OpenSSH evaluates ssh_config and known_hosts for them, and what runs over them."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import select
import shlex
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import IO, Any

import fabric
import paramiko
from paramiko.auth_strategy import AuthFailure, AuthStrategy, InMemoryPrivateKey
from paramiko.pkey import PublicBlob

from k8sdds.system.errors import K8sddsError, PrerequisiteError
from k8sdds.system.ssh.host import CHECK_S, END_S, HostError, HostLost, Target

OPTIONS = r"(?m)^(?:hostname|port|user|identit\w+|proxycommand|proxyjump|hostkeyalias|\w+knownhostsfile) .*"
"""The options of ssh_config that k8sdds follows."""
FAILURES = (OSError, EOFError, paramiko.SSHException)
"""The exceptions of connections."""
POLL_S = 0.1
"""Time in which a forwarded port and its connections end."""
CONNECT_S = 10
TIMEOUTS = {"auth_timeout": 30, **dict.fromkeys(("timeout", "banner_timeout", "channel_timeout"), CONNECT_S)}
ALIVE_INTERVAL_S, ALIVE_LIMIT_S = 5, 30
"""How often a machine is asked for an answer, and for how long it gives none until it is lost."""
SIGNALED = 255
"""Exit code of a command that a signal ended, as ssh returns it."""
CHUNK_BYTES = 32768
"""The largest packet that OpenSSH and paramiko send."""
MAX_OUTPUT_BYTES = 256 << 20
"""Largest output of a command, stdout and stderr each."""
# Without a handler, Python would print errors of the transport threads to stderr.
logging.getLogger("paramiko").addHandler(logging.NullHandler())
_recording = threading.Lock()


def route(machine: Target, accept_new_keys: bool) -> list[tuple[Target, fabric.Connection]]:
    """Return the connections to a machine and to its jump hosts, not open yet. Raises ValueError for a wrong option."""
    targets, hops, jump_hosts = [machine], list[tuple[Target, fabric.Connection]](), list[str]()
    for target in targets:
        argv = ["ssh", "-G", "-T", *target.options(), "--", target.alias]
        if "\n" in "".join(argv):
            raise ValueError("a value contains a line break")
        done = _run(*argv)
        if done.returncode != 0:
            raise ValueError(done.stderr.strip().partition("\n")[0] or f"ssh -G: exit code {done.returncode}")
        options = paramiko.SSHConfig.from_text("\n".join(re.findall(OPTIONS, done.stdout)))
        # fabric would find the gateways itself, but accept any key of them.
        config = fabric.Config(ssh_config=options, lazy=True)
        host = target.alias.removeprefix("ssh://")
        hop = fabric.Connection(host, config=config, gateway=False, forward_agent=False)
        keys = HostKeys(target, accept_new_keys, hop)
        hop.client.set_missing_host_key_policy(keys)
        strategy = Identities(hop.ssh_config)
        hop.connect_kwargs.update(TIMEOUTS, transport_factory=keys.transport, auth_strategy=strategy)
        for _, behind in hops[-1:]:
            behind.gateway = hop
        hops.append((target, hop))
        jump_hosts = jump_hosts or hop.ssh_config.get("proxyjump", "none").split(",")
        jump_host = jump_hosts.pop()
        # A pattern such as `Host *` may make a jump host its own jump host.
        if jump_host not in ("none", *(known.alias.removeprefix("ssh://") for known in targets)):
            name = f"{machine.name}: jump host {jump_host}"
            targets.append(Target(name, f"ssh://{jump_host}", ssh_config=machine.ssh_config))
    return hops


def log_in(target: Target, hop: fabric.Connection) -> None:
    """Open a connection, whose gateway is open. Raises HostError."""
    command = hop.ssh_config.get("proxycommand") or "none"
    try:
        if command != "none" and not hop.gateway:
            hop.connect_kwargs["sock"] = ProxyCommand(command)
        hop.open()
        if not hop.transport.is_authenticated():
            raise paramiko.AuthenticationException("the server requires more than a key")
    except paramiko.AuthenticationException as error:
        reason = f"{hop.user}@{hop.host}: permission denied"
        remedy = f"check that this works: ssh {target.alias}; copy your key with ssh-copy-id"
        if isinstance(error, AuthFailure):
            if files := " ".join(error.result.strategy.encrypted):
                reason = f"{files} requires a passphrase, and the agent does not have this key"
                remedy = f"add it to the agent: ssh-add {files}"
            elif not error.result:
                reason = f"there is no key to log in as {hop.user}"
        raise HostError(target.name, f"login refused: {reason}", remedy) from error
    except FAILURES as error:
        reason = getattr(error, "strerror", None) or str(error) or "the connection was closed"
        transport, proxy = hop.client.get_transport(), hop.connect_kwargs.get("sock")
        if transport is not None and not transport.remote_version:
            reason = (proxy and proxy.last_error()) or "no SSH server answers"
        remedy = "check that the machine is on and that its address in the profile is correct"
        raise HostError(target.name, f"cannot be reached: {reason}", remedy) from error


def _run(*argv: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(argv, input="", capture_output=True, errors="replace", timeout=CONNECT_S)
    except FileNotFoundError as error:
        raise PrerequisiteError(f"{argv[0]} is missing", "install openssh-client") from error
    except subprocess.TimeoutExpired as error:
        raise ValueError(f"{shlex.join(argv)} did not end within {CONNECT_S} s") from error


class HostKeys(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]
    """Decides about the key of a machine. paramiko asks it about every key, because it knows none itself."""

    def __init__(self, target: Target, accept_new_keys: bool, hop: fabric.Connection) -> None:
        self._target, self._accept_new_keys, options = target, accept_new_keys, hop.ssh_config
        host = hop.host if hop.port == paramiko.config.SSH_PORT else f"[{hop.host}]:{hop.port}"
        self._label = options.get("hostkeyalias", host).lower()
        # ssh does not quote the names of files, but there is only one if the profile names it.
        own = [target.known_hosts] if target.known_hosts else options["userknownhostsfile"].split()
        self._files = [Path(file).expanduser() for file in (*own, *options["globalknownhostsfile"].split())]
        self._known: list[tuple[Path, str, str, str]] = []
        """Files, markers, types and keys of the lines about the machine. Malformed keys are ignored."""
        for file in self._files:
            for line in _run("ssh-keygen", "-F", self._label, "-f", str(file)).stdout.splitlines():
                marker, _, kind, key, *_ = f"{'' if line.startswith('@') else '-'} {line} - - -".split()
                if key.startswith("AAAA"):
                    self._known.append((file, marker, kind, key))

    def transport(self, stream: Any, **options: Any) -> paramiko.Transport:
        """Return a transport that requests the known keys of a server with several keys."""
        if isinstance(stream, socket.socket) and stream.family != socket.AF_UNIX:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport = paramiko.Transport(stream, **options)
        algorithms = transport.get_security_options()
        # RSA keys have the type ssh-rsa and sign with rsa-sha2-*.
        known = {kind.replace("ssh-rsa", "rsa-sha2-512") for _, _, kind, _ in self._known}
        algorithms.key_types = sorted(algorithms.key_types, key=lambda name: name not in known)
        # AES-GCM needs no separate checksum, which would halve the rate of uploads.
        algorithms.ciphers = sorted(algorithms.ciphers, key=lambda name: "-gcm@" not in name)
        return transport

    def missing_host_key(self, client: object, hostname: str, key: paramiko.PKey) -> None:
        """Return if the key is trusted. Raises HostError."""
        markers = {marker for _, marker, _, known in self._known if known == key.get_base64()}
        changed = [file for file, marker, *_ in self._known if marker == "-"]
        if "@revoked" in markers:
            message, remedy = "its host key is revoked", "find out why, and give the machine another key"
        elif "-" in markers:
            return
        elif changed:
            message = "its host key has changed: the machine was replaced or reinstalled"
            removal = shlex.join(["ssh-keygen", "-R", self._label, "-f", str(changed[0])])
            remedy = f"if you expect this: {removal}; then repeat with --accept-new-host-keys"
        elif not self._accept_new_keys:
            message, login = "its host key is not known", f"log in once (ssh {self._target.alias})"
            remedy = f"{login} and compare the key, or use --accept-new-host-keys"
        else:
            try:
                self._files[0].parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                own = os.open(self._files[0], os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
                with _recording, open(own, "r+", errors="replace") as lines:
                    entry, text = f"{self._label} {key.get_name()} {key.get_base64()}\n", lines.read()
                    if entry not in text:
                        lines.write(entry if text[-1:] in ("", "\n") else f"\n{entry}")
                return
            except OSError as error:
                message, remedy = f"cannot record its host key: {error}", "make `known_hosts` writable"
        raise HostError(self._target.name, message, remedy)


class Identities(AuthStrategy):  # type: ignore[misc]
    """The keys of a user: the configured ones, in the agent or in files, then the others of the agent."""

    encrypted: tuple[str, ...] = ()
    """Key files that require a passphrase and are not in the agent."""

    def get_sources(self) -> Iterator[InMemoryPrivateKey]:
        """Yield the keys in the order in which they are offered."""
        user, only_files = self.ssh_config["user"], self.ssh_config.get("identitiesonly") == "yes"
        with contextlib.closing(paramiko.Agent()) as agent:
            in_agent = {key.asbytes(): key for key in agent.get_keys()}
            for path in filter(os.path.isfile, self.ssh_config.get("identityfile", ())):
                key = None
                with contextlib.suppress(OSError, ValueError, KeyError):
                    key = in_agent.pop(PublicBlob.from_file(f"{path.removesuffix('.pub')}.pub").key_blob)
                try:
                    yield InMemoryPrivateKey(user, key or paramiko.PKey.from_path(path))
                except (TypeError, paramiko.PasswordRequiredException):
                    self.encrypted += (path,)
                except Exception:
                    continue  # paramiko cannot read the key, for which it has many exceptions.
            # Without its public file, a file that requires a passphrase may be any key of the agent.
            if not only_files or self.encrypted:
                yield from (InMemoryPrivateKey(user, key) for key in in_agent.values())


class ProxyCommand(socket.socket):
    """The streams of a ProxyCommand. paramiko's class for it does not notice that the command ends."""

    def __init__(self, command: str) -> None:
        ours, theirs = socket.socketpair()
        super().__init__(fileno=ours.detach())
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed with this object
        with theirs:
            # It is a command of the shell, as in ssh_config(5). In a session of its own, Ctrl-C does not reach it.
            argv, end = ["/bin/sh", "-c", f"exec {command}"], theirs.fileno()
            self._process = subprocess.Popen(
                argv, stdin=end, stdout=end, stderr=self._errors, start_new_session=True
            )

    def last_error(self) -> str:
        """Return the last line of its messages."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace").strip().rpartition("\n")[2].strip()

    def close(self) -> None:
        """End the command, which may be a pipeline. A command of another user ends with its input."""
        super().close()
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            if self._process.returncode is None:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait(END_S)


@contextlib.contextmanager
def forwarding(connect: Callable[[], paramiko.Transport], address: str, port: int) -> Iterator[int]:
    """Yield a local port that leads to an address. The forwarding of fabric ends if a connection is refused."""
    ended = threading.Event()

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            # A destination that refuses connections ends this connection only.
            with contextlib.closing(self.request), contextlib.suppress(K8sddsError, *FAILURES):
                self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                channel = connect().open_channel("direct-tcpip", (address, port), self.client_address)
                ways = {self.request: channel, channel: self.request}
                with contextlib.closing(channel):
                    while ways and not ended.is_set():
                        for source in select.select(list(ways), (), (), POLL_S)[0]:
                            if data := source.recv(1 << 18):
                                ways[source].sendall(data)
                            else:
                                ways.pop(source).shutdown(socket.SHUT_WR)

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(POLL_S,), daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            ended.set()
            server.shutdown()


def watch(transport: paramiko.Transport) -> None:
    """Close a connection as soon as the machine does not answer."""
    while transport.is_active():
        lost = threading.Timer(ALIVE_LIMIT_S, transport.close)
        lost.start()
        with contextlib.suppress(*FAILURES):
            transport.global_request("keepalive@openssh.com", wait=True)
        lost.cancel()
        transport.join(ALIVE_INTERVAL_S)


def execute(
    name: str, transport: paramiko.Transport, command: str, stdin: IO[bytes], timeout_s: float
) -> tuple[int, str, str]:
    """Run a command on a machine; return its exit code, stdout and stderr. Raises like `Host.run`, or OSError."""
    deadline_s = time.monotonic() + timeout_s
    remedy = "check that the machine is on and connected, and that it has not rebooted"
    lost = HostLost(name, "the connection was lost while a script ran", remedy)
    try:
        channel = transport.open_session()
    except FAILURES as error:
        raise lost from error

    def chunks() -> Iterator[bytes]:
        try:
            yield from iter(lambda: stdin.read(CHUNK_BYTES), b"")
        except OSError as error:
            unread.append(error)

    def send() -> None:
        # The command may end without reading all of its input.
        with contextlib.suppress(*FAILURES), channel.makefile_stdin("wb") as sink:
            channel.exec_command(command)
            sink.writelines(chunks())

    def receive(receive: Callable[[int], bytes], output: bytearray) -> None:
        while data := receive(CHUNK_BYTES):
            output += data
            if len(output) > MAX_OUTPUT_BYTES:
                channel.close()

    out, err, unread = bytearray(), bytearray(), list[OSError]()
    receivers = (lambda: receive(channel.recv, out), lambda: receive(channel.recv_stderr, err))
    # A thread starts the command, because paramiko waits without end if the channel is closed right before it.
    works = (send, *receivers, channel.recv_exit_status)
    sending, *receiving = [threading.Thread(target=work, daemon=True) for work in works]
    with contextlib.closing(channel):
        for thread in (sending, *receiving):
            thread.start()
        for thread in receiving:
            while thread.is_alive():
                thread.join(CHECK_S)
                if time.monotonic() >= deadline_s:
                    channel.close()
    sending.join(END_S)
    if unread:
        raise OSError(unread[0].errno, unread[0].strerror, stdin.name)
    code = channel.recv_exit_status()
    if max(len(out), len(err)) > MAX_OUTPUT_BYTES:
        raise HostError(name, f"a script printed more than {MAX_OUTPUT_BYTES >> 20} MiB", "check the machine")
    if code < 0:
        # The deadline or a signal ended the command, or the connection is lost.
        transport.join(CHECK_S)
        if not transport.is_active():
            raise lost
        if time.monotonic() >= deadline_s:
            remedy = "check whether the machine is overloaded or disconnected"
            raise HostError(name, f"no answer within {timeout_s:g} s", remedy)
    return SIGNALED if code < 0 else code, out.decode(errors="replace"), err.decode(errors="replace")
