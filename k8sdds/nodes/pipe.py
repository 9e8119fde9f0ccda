"""Connect to a port of a local node: `pipe.py HOLDER_PID START_TIME ADDRESS PORT [LOCAL_PORT]`.

Without LOCAL_PORT, it connects stdin and stdout, as the ProxyCommand of SSH. With LOCAL_PORT, stdin is a socket that
listens on this port, and it connects every connection that the socket accepts.

It uses only the standard library and runs with -IS, so that it starts within milliseconds.
"""

import ctypes
import os
import socket
import sys
import threading
from collections.abc import Callable
from functools import partial

CLONE_NEWNET = 0x40000000


def main() -> int:
    """Enter the network of the nodes and copy data until the peers close; return the exit code."""
    pid, started, address, port, *local_port = sys.argv[1:]
    try:
        # Opened before the check of the start time, so that it cannot belong to a later process.
        namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
        with open(f"/proc/{pid}/stat") as file:
            same = file.read().rpartition(")")[2].split()[19] == started
    except OSError:
        same = False
    if not same:
        print("k8sdds: this cluster of local nodes does not run", file=sys.stderr)
        return 1
    if ctypes.CDLL(None, use_errno=True).setns(namespace, CLONE_NEWNET):
        print(f"k8sdds: cannot enter the switch: {os.strerror(ctypes.get_errno())}", file=sys.stderr)
        return 1
    if local_port:
        serve((address, int(port)))
    try:
        peer = connect((address, int(port)))
    except OSError as error:
        print(f"k8sdds: {address} port {port}: {error}", file=sys.stderr)
        return 1
    end_input = partial(peer.shutdown, socket.SHUT_WR)
    threading.Thread(target=copy, args=(partial(os.read, 0), peer.sendall, end_input), daemon=True).start()
    copy(peer.recv, write_all, lambda: None)
    return 0


def connect(destination: tuple[str, int]) -> socket.socket:
    """Connect to a node. Raises OSError."""
    peer = socket.create_connection(destination, timeout=10)
    peer.settimeout(None)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return peer


def write_all(data: bytes) -> None:
    """Write all data to stdout."""
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def copy(read: Callable[[int], bytes], write: Callable[[bytes], object], end: Callable[[], object]) -> None:
    """Copy data until its end, or until one side fails."""
    try:
        while data := read(262144):
            write(data)
        end()
    except OSError:
        pass


def serve(destination: tuple[str, int]) -> None:
    """Connect all connections that the listening socket on stdin accepts. Runs until it is killed."""
    # The socket stays in the network namespace in which it was created.
    listener = socket.socket(fileno=0)
    while True:
        client, _ = listener.accept()
        threading.Thread(target=forward, args=(client, destination), daemon=True).start()


def forward(client: socket.socket, destination: tuple[str, int]) -> None:
    """Copy data between a client and a node until both have closed."""
    with client:
        try:
            peer = connect(destination)
        except OSError:
            return
        with peer:
            ends = (peer.recv, client.sendall, partial(client.shutdown, socket.SHUT_WR))
            back = threading.Thread(target=copy, args=ends)
            back.start()
            copy(client.recv, peer.sendall, partial(peer.shutdown, socket.SHUT_WR))
            back.join()


if __name__ == "__main__":
    try:
        code = main()
    except KeyboardInterrupt:
        code = 1
    os._exit(code)
