"""Forward a local port over SSH."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import TypeAlias

import paramiko

from k8sdds.system.errors import K8sddsError

LOOPBACK = "127.0.0.1"
CHUNK_BYTES = 1 << 18
Stream: TypeAlias = socket.socket | paramiko.Channel


class Forwarding:
    """A listening port of this machine, whose connections lead to another machine. A context.

    fabric's own forwarding ends with the first connection that the destination refuses.
    """

    def __init__(self, connect: Callable[[], paramiko.Channel]) -> None:
        """Listen on a free port.

        Args:
            connect: Connects to the destination.
        """
        self._connect = connect
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        # Guarded by _lock.
        self._open: set[Stream] = set()
        self._ended = False
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Forwarding:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._ended = True
            for stream in self._open:
                _end(stream)
        _end(self._listener)
        self._thread.join()
        self._listener.close()

    def _accept(self) -> None:
        threads = []
        # `__exit__` ends the wait for a connection.
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threads.append(threading.Thread(target=self._serve, args=(client,), daemon=True))
                threads[-1].start()
                threads = [thread for thread in threads if thread.is_alive()]
        for thread in threads:
            thread.join()

    def _serve(self, client: socket.socket) -> None:
        # A destination that refuses connections ends this connection only.
        with client, contextlib.suppress(K8sddsError, paramiko.SSHException, OSError, EOFError):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with contextlib.closing(self._connect()) as channel, self._registered(client, channel):
                back = threading.Thread(target=_copy, args=(channel, client), daemon=True)
                back.start()
                _copy(client, channel)
                back.join()

    @contextlib.contextmanager
    def _registered(self, *streams: Stream) -> Iterator[None]:
        with self._lock:
            if self._ended:
                raise OSError
            self._open.update(streams)
        try:
            yield
        finally:
            with self._lock:
                self._open.difference_update(streams)


def _copy(source: Stream, sink: Stream) -> None:
    """Copy data until the source ends, and end the sink."""
    with contextlib.suppress(OSError, EOFError):
        while data := source.recv(CHUNK_BYTES):
            sink.sendall(data)
    with contextlib.suppress(OSError, EOFError):
        sink.shutdown(socket.SHUT_WR)


def _end(stream: Stream) -> None:
    """Wake up the threads that use a stream."""
    with contextlib.suppress(OSError, EOFError):
        if isinstance(stream, paramiko.Channel):
            stream.close()
        else:
            stream.shutdown(socket.SHUT_RDWR)
