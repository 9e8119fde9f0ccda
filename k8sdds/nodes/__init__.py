"""Local nodes: machines made of namespaces on this machine, with systemd, sshd and containerd of their own.

A cluster is one sandbox (its holder's network namespace is the switch); a machine is a process tree in it.
When the holder ends, the kernel ends all machines and frees their mounts and links. Root only.
"""

from k8sdds.nodes.cluster import clean, connect, cut, down, exec_argv, find, ls, run, stop, up
from k8sdds.nodes.spec import Link, LocalNode, NodeSpec, Share

__all__ = [
    "Link", "LocalNode", "NodeSpec", "Share",
    "clean", "connect", "cut", "down", "exec_argv", "find", "ls", "run", "stop", "up",
]  # fmt: skip
