"""Forward a local port over SSH. The forwarding of fabric ends with the first connection that is refused."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import TypeAlias

import paramiko

from k8sdds.system.errors import K8sddsError

CHUNK_BYTES = 1 << 18
END_S = 2
"""Time in which open connections end."""
Stream: TypeAlias = socket.socket | paramiko.Channel
REFUSED = (K8sddsError, paramiko.SSHException, OSError, EOFError)


@contextlib.contextmanager
def forwarding(connect: Callable[[], paramiko.Channel]) -> Iterator[int]:
    """Yield a local port whose connections lead to another machine. They end with the `with` block.

    Args:
        connect: Connects to the destination.
    """
    # Everything that must be woken up at the end, and the threads that then end.
    streams: set[Stream] = set()
    threads: list[threading.Thread] = []
    ended = threading.Event()

    def accept() -> None:
        # The end of the forwarding ends the wait for a connection.
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                streams.add(client)
                threads[:] = [thread for thread in threads if thread.is_alive()]
                threads.append(threading.Thread(target=serve, args=(client,), daemon=True))
                threads[-1].start()

    def serve(client: socket.socket) -> None:
        # A destination that refuses connections ends this connection only.
        with client, contextlib.suppress(*REFUSED):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with contextlib.closing(connect()) as channel:
                streams.add(channel)
                if not ended.is_set():
                    back = threading.Thread(target=_copy, args=(channel, client), daemon=True)
                    back.start()
                    _copy(client, channel)
                    back.join()
                streams.remove(channel)
        streams.remove(client)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        try:
            yield listener.getsockname()[1]
        finally:
            _end(listener)
            accepting.join()
            ended.set()
            for stream in list(streams):
                _end(stream)
            for thread in threads:
                thread.join(END_S)


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
