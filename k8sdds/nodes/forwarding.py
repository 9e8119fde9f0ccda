"""Forward a port of this machine to a port of a local node."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from pathlib import Path

from k8sdds.nodes import switch
from k8sdds.nodes.records import ClusterRecord

LOOPBACK = "127.0.0.1"


def start(record: ClusterRecord, name: str, port: int, local_port: int = 0) -> int:
    """Start a process that forwards connections, unless one runs. It ends with the cluster.

    Args:
        record: The cluster.
        name: The node.
        port: Its port.
        local_port: The port of this machine to use if it is free; 0: any.

    Returns:
        The port of this machine.
    """
    sandbox = switch.sandbox_of(record)
    program = switch.proxy(record, record.machines[name].address, port)
    if local_port and _runs([*program, str(local_port)]):
        return local_port
    try:
        listener = socket.create_server((LOOPBACK, local_port))
    except OSError:
        # Another program now uses the port.
        listener = socket.create_server((LOOPBACK, 0))
    with listener:
        local_port = listener.getsockname()[1]
        # The program runs in the PID namespace of the nodes, so that the kernel ends it together with them.
        subprocess.Popen(
            ["nsenter", "--target", str(sandbox.pid), "--pid", "--", *program, str(local_port)],
            stdin=listener.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    return local_port


def _runs(argv: list[str]) -> bool:
    expected = "".join(f"{word}\0" for word in argv).encode()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        # A process may end at this moment.
        with contextlib.suppress(OSError):
            if path.read_bytes() == expected:
                return True
    return False
