"""Connect stdin and stdout to a port of a local node: `pipe.py HOLDER_PID START_TIME ADDRESS PORT`.

ssh runs it as its ProxyCommand. It uses only the standard library and runs with -IS, so that it starts within
milliseconds.
"""

import ctypes
import os
import socket
import sys
import threading

CLONE_NEWNET = 0x40000000


def main() -> int:
    """Copy data in both directions until the peer closes the connection; return the exit code."""
    pid, started, address, port = sys.argv[1:]
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
    try:
        peer = socket.create_connection((address, int(port)), timeout=10)
    except OSError as error:
        print(f"k8sdds: {address} port {port}: {error}", file=sys.stderr)
        return 1
    peer.settimeout(None)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    threading.Thread(target=send, args=(peer,), daemon=True).start()
    while data := receive(peer):
        write_all(data)
    return 0


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


if __name__ == "__main__":
    try:
        code = main()
    except (BrokenPipeError, KeyboardInterrupt):
        code = 1
    os._exit(code)
