"""Run scripts on machines over SSH, through fabric and paramiko, as ssh_config, agent and known_hosts define it.

All scripts for a machine share one connection. Scripts are passed through stdin, never as arguments.
"""

from k8sdds.system.ssh.host import Connect, Connections, Host, HostError, HostLost, ScriptResult, Target

__all__ = ["Connect", "Connections", "Host", "HostError", "HostLost", "ScriptResult", "Target"]
