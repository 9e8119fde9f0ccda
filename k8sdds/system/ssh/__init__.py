"""Run scripts on machines over SSH, through fabric and paramiko.

All commands of k8sdds read and change machines through this package. It follows ssh_config, uses the agent and
verifies host keys as OpenSSH does. All scripts for a machine share one connection. Scripts are passed through
stdin, never as arguments.

The libraries are imported with the first connection, because their import takes longer than most commands.
"""

from k8sdds.system.ssh.host import Connections, Host, HostError, HostLost, Result, ScriptResult
from k8sdds.system.ssh.target import Login, Target

__all__ = ["Connections", "Host", "HostError", "HostLost", "Login", "Result", "ScriptResult", "Target"]
