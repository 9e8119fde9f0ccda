"""Connections of fabric, as OpenSSH evaluates ssh_config and known_hosts for them, and what runs over them."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shlex
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import IO, Any

import fabric
import paramiko
from paramiko import Channel, Transport
from paramiko.auth_strategy import AuthFailure, AuthStrategy, InMemoryPrivateKey
from paramiko.pkey import PublicBlob

from k8sdds.system.errors import K8sddsError, PrerequisiteError
from k8sdds.system.ssh.host import CHECK_S, END_S, HostError, HostLost, ScriptResult, Target

# The options of ssh_config that k8sdds follows, and marker, type and key of a line of known_hosts.
OPTIONS = r"(?m)^(?:host(?:name|keyalias)|port|user|identit\w+|proxy(?:command|jump)|\w+known\w+) .*"
JUMP_HOST = r"^(?:ssh://)?(?:(.*)@)?\[?([^]]*?)]?(?::(\d+))?/?$"
KNOWN = r"(?m)^[ \t]*(?:(@\S+)[ \t]+)?[^#@\s]\S*[ \t]+(ssh-ed25519|ssh-rsa|ecdsa-\S+)[ \t]+(AAAA\S*)"
FAILURES = (OSError, EOFError, paramiko.SSHException)
CONNECT_S = 10
TIMEOUTS = {"auth_timeout": 30, **dict.fromkeys(("timeout", "banner_timeout", "channel_timeout"), CONNECT_S)}
ALIVE_INTERVAL_S, ALIVE_LIMIT_S = 5, 30
"""How often a machine is asked for an answer, and for how long it gives none until it is lost."""
CHUNK_BYTES, MAX_OUTPUT_BYTES = 32768, 256 << 20
"""The largest packet that OpenSSH and paramiko send, and the largest output of a command, stdout and stderr each."""
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
        hop = fabric.Connection(target.alias, config=config, gateway=False, forward_agent=False)
        keys, identities = HostKeys(target, accept_new_keys, hop), Identities(hop.ssh_config)
        hop.client.set_missing_host_key_policy(keys)
        hop.connect_kwargs.update(TIMEOUTS, transport_factory=keys.transport, auth_strategy=identities)
        for _, behind in hops[-1:]:
            behind.gateway = hop
        hops.append((target, hop))
        jump_hosts = jump_hosts or hop.ssh_config.get("proxyjump", "none").split(",")
        [(user, host, port)] = re.findall(JUMP_HOST, jump_hosts.pop())
        name = f"{machine.name}: jump host {host}"
        jump = Target(name, host, user, int(port or 0), ssh_config=machine.ssh_config)
        # A pattern such as `Host *` may make a jump host its own jump host.
        if host not in ("none", target.alias) and jump not in targets:
            targets.append(jump)
    return hops


def log_in(target: Target, hop: fabric.Connection) -> None:
    """Open a connection, whose gateway is open. Raises HostError."""
    try:
        if not hop.gateway and (command := hop.ssh_config.get("proxycommand")):
            hop.connect_kwargs["sock"] = ProxyCommand(command)
        hop.open()
        if not hop.transport.is_authenticated():
            raise paramiko.AuthenticationException("the server requires more than a key")
        threading.Thread(target=watch, args=(hop.transport,), name=f"asks {target.name}", daemon=True).start()
    except paramiko.AuthenticationException as error:
        reason = f"{hop.user}@{hop.host}: permission denied"
        remedy = f"check that this works: ssh {target.alias}; copy your key with ssh-copy-id"
        if files := " ".join(hop.connect_kwargs["auth_strategy"].encrypted):
            reason = f"{files} requires a passphrase, and the agent does not have this key"
            remedy = f"add it to the agent: ssh-add {files}"
        elif isinstance(error, AuthFailure) and not error.result:
            reason = f"there is no key to log in as {hop.user}"
        raise HostError(target.name, f"login refused: {reason}", remedy) from error
    except FAILURES as error:
        reason = getattr(error, "strerror", None) or str(error) or "the connection was closed"
        transport, proxy = hop.client.get_transport(), hop.connect_kwargs.get("sock")
        if transport is not None and not transport.remote_version:
            reason = (proxy and proxy.last_error()) or "no SSH server answers"
        remedy = "check that the machine is on and that its address in the profile is correct"
        raise HostError(target.name, f"cannot be reached: {reason}", remedy) from error


def watch(transport: Transport) -> None:
    """Close a connection as soon as the machine does not answer."""
    while transport.is_active():
        lost = threading.Timer(ALIVE_LIMIT_S, transport.close)
        lost.start()
        with contextlib.suppress(*FAILURES):
            transport.global_request("keepalive@openssh.com", wait=True)
        lost.cancel()
        transport.join(ALIVE_INTERVAL_S)


def _run(*argv: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(argv, input="", capture_output=True, errors="replace", timeout=CONNECT_S)
    except FileNotFoundError as error:
        raise PrerequisiteError(f"{argv[0]} is missing", "install openssh-client") from error
    except subprocess.TimeoutExpired as error:
        raise ValueError(f"{shlex.join(argv)} did not end within {CONNECT_S} s") from error


def _lines(name: str, files: Iterable[Path]) -> list[tuple[Path, str, str, str]]:
    """Return file, marker, type and key of the lines about a machine. Malformed keys are ignored."""
    outputs = ((file, _run("ssh-keygen", "-F", name, "-f", str(file)).stdout) for file in files)
    return [(file, *fields) for file, output in outputs for fields in re.findall(KNOWN, output)]


def _paths(files: str) -> list[Path]:
    names = ("/dev/null" if name == "none" else name.replace("%d", "~") for name in files.split())
    return [Path(name).expanduser() for name in names]


class HostKeys(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]
    """Decides about the key of a machine. paramiko asks it about every key, because it knows none itself."""

    def __init__(self, target: Target, accept_new_keys: bool, hop: fabric.Connection) -> None:
        self._target, self._accept_new_keys, self._options = target, accept_new_keys, hop.ssh_config
        name = self._options.get("hostkeyalias", hop.host).lower()
        has_port = hop.port != paramiko.config.SSH_PORT and "hostkeyalias" not in self._options
        self._label = f"[{name}]:{hop.port}" if has_port else name
        # ssh does not quote the names of files, but there is only one if the profile names it.
        own = [target.known_hosts] if target.known_hosts else _paths(self._options["userknownhostsfile"])
        self._files = [*own, *_paths(self._options["globalknownhostsfile"])]
        self._own = _lines(self._label, self._files)
        # Keys of the default port are accepted on another port, but another key there is not a change.
        self._known = self._own + (_lines(name, self._files) if has_port else [])

    def transport(self, stream: Any, **options: Any) -> Transport:
        """Return a transport that requests the known keys of a server with several keys."""
        if isinstance(stream, socket.socket) and stream.family != socket.AF_UNIX:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport = Transport(stream, **options)
        algorithms = transport.get_security_options()
        # RSA keys have the type ssh-rsa and sign with rsa-sha2-*.
        kinds = " ".join(kind for _, marker, kind, _ in self._known if not marker)
        known = kinds.replace("ssh-rsa", "rsa-sha2-256 rsa-sha2-512").split()
        algorithms.key_types = sorted(algorithms.key_types, key=lambda name: name not in known)
        # AES-GCM needs no separate checksum, which would halve the rate of uploads.
        algorithms.ciphers = sorted(algorithms.ciphers, key=lambda name: "-gcm@" not in name)
        return transport

    def missing_host_key(self, client: object, hostname: str, key: paramiko.PKey) -> None:
        """Return if the key is trusted. Raises HostError."""
        markers = {marker for _, marker, _, known in self._known if known == key.get_base64()}
        if "@revoked" in markers:
            message, remedy = "its host key is revoked", "find out why, and give the machine another key"
        elif "" in markers:
            return
        elif changed := [file for file, marker, *_ in self._own if not marker]:
            message = "its host key has changed: the machine was replaced or reinstalled"
            removal = shlex.join(["ssh-keygen", "-R", self._label, "-f", str(changed[0])])
            remedy = f"if you expect this: {removal}; then repeat with --accept-new-host-keys"
        elif not self._accept_new_keys:
            certified = any(marker == "@cert-authority" for _, marker, *_ in self._own)
            reason = ": k8sdds does not support certificates of host keys" if certified else ""
            message, login = f"its host key is not known{reason}", f"log in once (ssh {self._target.alias})"
            remedy = f"{login} and compare the key, or use --accept-new-host-keys"
        else:
            try:
                return self._record(f"{key.get_name()} {key.get_base64()}")
            except OSError as error:
                message, remedy = f"cannot record its host key: {error}", "make `known_hosts` writable"
        raise HostError(self._target.name, message, remedy)

    def _record(self, key: str) -> None:
        hashed = self._options.get("hashknownhosts") == "yes"
        name = paramiko.HostKeys.hash_host(self._label) if hashed else self._label
        self._files[0].parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(self._files[0], os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        with _recording, open(file, "r+", errors="replace") as lines:
            # Another connection may have recorded the key of the same jump host.
            if all(f"{kind} {known}" != key for *_, kind, known in _lines(self._label, self._files)):
                lines.write(f"{name} {key}\n" if lines.read()[-1:] in ("", "\n") else f"\n{name} {key}\n")


class Identities(AuthStrategy):  # type: ignore[misc]
    """The keys of a user: the configured ones, in the agent or in files, then the others of the agent."""

    encrypted: tuple[str, ...] = ()  # Key files that require a passphrase and are not in the agent.

    def get_sources(self) -> Iterator[InMemoryPrivateKey]:
        """Yield the keys in the order in which they are offered."""
        user, only_files = self.ssh_config["user"], self.ssh_config.get("identitiesonly") == "yes"
        with contextlib.closing(paramiko.Agent()) as agent:
            in_agent = {key.asbytes(): key for key in agent.get_keys()}
            for path in filter(os.path.isfile, self.ssh_config.get("identityfile", ())):
                public = None
                with contextlib.suppress(OSError, ValueError):
                    public = PublicBlob.from_file(f"{path.removesuffix('.pub')}.pub").key_blob
                try:
                    key = in_agent.pop(public, None) or paramiko.PKey.from_path(path)
                    yield InMemoryPrivateKey(user, key)
                except (TypeError, paramiko.PasswordRequiredException):
                    self.encrypted += (path,)
                    # Without its public file, any key of the agent may be this one.
                    only_files = only_files and public is not None
                except Exception:
                    continue  # paramiko cannot read the key, for which it has many exceptions.
            yield from (InMemoryPrivateKey(user, key) for key in in_agent.values() if not only_files)


class ProxyCommand(socket.socket):
    """The streams of a ProxyCommand. paramiko's class for it does not notice that the command ends."""

    def __init__(self, command: str) -> None:
        ours, theirs = socket.socketpair()
        super().__init__(fileno=ours.detach())
        self._errors = errors = tempfile.TemporaryFile()  # noqa: SIM115  closed with this object
        with theirs:
            # It is a command of the shell, as in ssh_config(5). In a session of its own, Ctrl-C does not reach it.
            argv, end = ["/bin/sh", "-c", f"exec {command}"], theirs.fileno()
            self._process = subprocess.Popen(argv, -1, None, end, end, errors, start_new_session=True)

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
def forwarding(connect: Callable[[], Transport], address: str, port: int) -> Iterator[int]:
    """Yield a local port that leads to an address."""
    # The forwarding of fabric ends if a connection is refused. It also waits for channels with `select`: paramiko loses
    # the whole connection if such a channel is closed while data arrives for it.
    ended, channels = threading.Event(), dict[threading.Thread, Channel]()

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(K8sddsError, *FAILURES):
                self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                channel = connect().open_channel("direct-tcpip", (address, port), self.client_address)
                channels[threading.current_thread()] = channel
                with contextlib.closing(channel):
                    back = threading.Thread(target=_copy, args=(channel, self.request), daemon=True)
                    if not ended.is_set():
                        back.start()
                        _copy(self.request, channel)
                        back.join()
            channels.pop(threading.current_thread(), None)

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            ended.set()
            for thread, channel in list(channels.items()):
                channel.close()
                thread.join(END_S)


def _copy(source: socket.socket | Channel, sink: socket.socket | Channel) -> None:
    with contextlib.suppress(*FAILURES), contextlib.ExitStack() as last:
        # The end of a channel, not only of its data, ends the other direction, too.
        last.callback(
            lambda: sink.shutdown(socket.SHUT_RDWR if getattr(source, "closed", 0) else socket.SHUT_WR)
        )
        while data := source.recv(1 << 18):
            sink.sendall(data)


def open_session(name: str, transport: Transport, deadline_s: float) -> Channel:
    """Return a session when the server starts one: by default, sshd has at most 10 at the same time."""
    while transport.is_active():
        with contextlib.suppress(*FAILURES):
            return transport.open_session()
        if time.monotonic() >= deadline_s:
            remedy = "check MaxSessions in its sshd_config, and whether the machine is overloaded"
            raise HostError(name, "the SSH server starts no session", remedy)
        transport.join(CHECK_S)
    raise HostLost(name)


def execute(name: str, link: Transport, command: str, stdin: IO[bytes], timeout_s: float) -> ScriptResult:
    """Run a command on a machine. Raises like `Host.run`, or OSError if stdin cannot be read."""
    deadline_s = time.monotonic() + timeout_s
    channel = open_session(name, link, deadline_s)
    out, err, unread = bytearray(), bytearray(), list[OSError]()

    def send() -> None:
        # The connection may be lost, and the command may not be allowed.
        with contextlib.suppress(*FAILURES), channel.makefile_stdin("wb") as sink:
            channel.exec_command(command)
            try:
                while data := stdin.read(CHUNK_BYTES):
                    sink.write(data)
            except OSError as error:
                if not channel.closed:
                    unread.append(error)

    # A thread starts the command, because paramiko waits without end if the channel is closed right before it.
    receivers = (lambda: _read(channel, channel.recv, out), lambda: _read(channel, channel.recv_stderr, err))
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
        # The deadline or a signal ended the command, for which ssh returns 255, too, or the connection is lost.
        link.join(CHECK_S)
        if not link.is_active():
            raise HostLost(name)
        if time.monotonic() >= deadline_s:
            remedy = "check whether the machine is overloaded or disconnected"
            raise HostError(name, f"no answer within {timeout_s:g} s", remedy)
        code = 255
    return ScriptResult(code, out.decode(errors="replace"), err.decode(errors="replace"))


def _read(channel: Channel, receive: Callable[[int], bytes], output: bytearray) -> None:
    while data := receive(CHUNK_BYTES):
        output += data
        if len(output) > MAX_OUTPUT_BYTES:
            channel.close()
