"""Run scripts on machines over SSH, through fabric and paramiko, as ssh_config, agent and known_hosts define it.

All scripts for a machine share one connection. Scripts are passed through stdin, never as arguments.
"""

from k8sdds.system.ssh.connections import Connections, Result
from k8sdds.system.ssh.host import Host, ScriptResult
from k8sdds.system.ssh.target import HostError, HostLost, Login, Target

__all__ = ["Connections", "Host", "HostError", "HostLost", "Login", "Result", "ScriptResult", "Target"]
