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
    threading.Thread(target=send, args=(peer,), daemon=True).start()
    while data := receive(peer):
        write_all(data)
    return 0


def connect(destination: tuple[str, int]) -> socket.socket:
    """Connect to a node. Raises OSError."""
    peer = socket.create_connection(destination, timeout=10)
    peer.settimeout(None)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return peer


def receive(peer: socket.socket) -> bytes:
    """Receive data; return nothing at the end of the connection."""
    try:
        return peer.recv(262144)
    except OSError:
        return b""


def write_all(data: bytes) -> None:
    """Write all data to stdout."""
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def send(peer: socket.socket) -> None:
    """Send stdin to the peer until its end."""
    try:
        while data := os.read(0, 262144):
            peer.sendall(data)
        peer.shutdown(socket.SHUT_WR)
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
            back = threading.Thread(target=copy, args=(peer, client))
            back.start()
            copy(client, peer)
            back.join()


def copy(source: socket.socket, sink: socket.socket) -> None:
    """Copy data from one connection to another until its end."""
    try:
        while data := receive(source):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass


if __name__ == "__main__":
    try:
        code = main()
    except (BrokenPipeError, KeyboardInterrupt):
        code = 1
    os._exit(code)
