"""Connect stdin and stdout to a port of a local node: `pipe.py HOLDER_PID START_TIME ADDRESS PORT`.

Run by ssh as its ProxyCommand. Standard library only and started with -IS: it costs a few milliseconds.
"""

import ctypes
import os
import socket
import sys
import threading

CLONE_NEWNET = 0x40000000


def main() -> int:
    pid, started, address, port = sys.argv[1:]
    try:
        # Opened before the check: the id cannot pass to another process unnoticed any more.
        namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
        with open(f"/proc/{pid}/stat") as file:
            same = file.read().rpartition(")")[2].split()[19] == started
    except OSError:
        same = False
    if not same:
        print("k8sdds: this cluster of local nodes does not stand any more", file=sys.stderr)
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
    try:
        return peer.recv(262144)
    except OSError:
        return b""


def write_all(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def send(peer: socket.socket) -> None:
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
