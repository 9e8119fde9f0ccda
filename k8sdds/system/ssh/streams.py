"""Connect SSH with local programs: the streams of a ProxyCommand, and a forwarded port."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from socketserver import StreamRequestHandler, ThreadingTCPServer

import paramiko

from k8sdds.system.errors import K8sddsError
from k8sdds.system.ssh.target import END_S

POLL_S = 0.1
"""Time in which the server of a forwarded port ends."""


class ProxyCommand:
    """A ProxyCommand. paramiko's class for it does not notice that the command ends."""

    def __init__(self, command: str) -> None:
        self.stream, theirs = socket.socketpair()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed by close()
        with theirs:
            # It is a command of the shell, as in ssh_config(5). In a session of its own, Ctrl-C does not reach it.
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {command}"], start_new_session=True,
                stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=self._errors,
            )  # fmt: skip

    def last_error(self) -> str:
        """Return the last line of its messages."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace").strip().rpartition("\n")[2].strip()

    def close(self) -> None:
        """End the command, which may be a pipeline, or run as another user."""
        self.stream.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                if self._process.returncode is None:
                    os.killpg(self._process.pid, number)
                    self._process.wait(END_S)
        self._errors.close()


@contextlib.contextmanager
def forwarding(connect: Callable[[], paramiko.Channel]) -> Iterator[int]:
    """Yield a local port whose connections lead to where `connect` connects. They end with the `with` block.

    The forwarding of fabric ends with the first connection that is refused.
    """
    streams: set[socket.socket | paramiko.Channel] = set()
    threads: set[threading.Thread] = set()
    ended = threading.Event()

    class Handler(StreamRequestHandler):
        disable_nagle_algorithm = True

        def handle(self) -> None:
            threads.difference_update([thread for thread in list(threads) if not thread.is_alive()])
            threads.add(threading.current_thread())
            # A destination that refuses connections ends this connection only.
            refused = contextlib.suppress(K8sddsError, paramiko.SSHException, OSError, EOFError)
            with refused, contextlib.closing(connect()) as channel:
                streams.update((self.request, channel))
                if not ended.is_set():
                    back = threading.Thread(target=_copy, args=(channel, self.request), daemon=True)
                    back.start()
                    _copy(self.request, channel)
                    back.join()
                streams.difference_update((self.request, channel))

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(POLL_S,), daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            ended.set()
            for stream in list(streams):
                with contextlib.suppress(OSError, EOFError):
                    # Wakes up the threads that use it.
                    stream.shutdown(socket.SHUT_RDWR)
                stream.close()
            for thread in list(threads):
                thread.join(END_S)


def _copy(source: socket.socket | paramiko.Channel, sink: socket.socket | paramiko.Channel) -> None:
    with contextlib.suppress(OSError, EOFError):
        while data := source.recv(1 << 18):
            sink.sendall(data)
    with contextlib.suppress(OSError, EOFError):
        sink.shutdown(socket.SHUT_WR)
