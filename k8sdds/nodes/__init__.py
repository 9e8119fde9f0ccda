"""Create local nodes: machines made of namespaces, with systemd, sshd and containerd. Requires root.

A cluster is one sandbox, whose network namespace is the switch. A node is a process tree in it. When the
holder process of the sandbox ends, the kernel kills all nodes and frees their mounts and links.
"""

from k8sdds.nodes.cluster import (
    clean,
    connect,
    down,
    exec_argv,
    forward,
    give_real_time_priority,
    ls,
    run,
    set_link,
    stop,
    up,
)
from k8sdds.nodes.records import damaged
from k8sdds.nodes.spec import LocalNode, NodeLink, NodeSpec, SharedFolder

__all__ = [
    "LocalNode", "NodeLink", "NodeSpec", "SharedFolder",
    "clean", "connect", "damaged", "down", "exec_argv", "forward", "give_real_time_priority",
    "ls", "run", "set_link", "stop", "up",
]  # fmt: skip
