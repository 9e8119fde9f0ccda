"""Call CNI plugins for pods of a node of the lab, as a container runtime does. A program of its own.

`pod_starts` runs it in the network namespace of a node, in a mount namespace of its own: the plugins keep their state
in memory, and it ends with this process. It reads a line of JSON, prints `ready`, adds all pods at once at the line
`add`, and deletes them at the next line or at the end of its input. It imports nothing of k8sdds, so that it starts
quickly.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

STATE = "/var/lib/cni"
"""Where plugins keep what they have assigned."""
PROGRAMS = f"{STATE}/bin"
TIMEOUT_S = 60


class Node:
    """The plugins of a node, and its pods.

    The request has `programs` (name to path), `configuration` (that of the plugins), `files` (path to text),
    `interface` (name in the pods), `reserved` (addresses that are in use) and `pods` (names of network namespaces).
    """

    def __init__(self, request: dict[str, Any]) -> None:
        self._configuration = request["configuration"]
        self._interface = request["interface"]
        self._pods: list[str] = request["pods"]
        programs = {
            f"{PROGRAMS}/{name}": Path(path).read_bytes() for name, path in request["programs"].items()
        }
        # Nothing of the machine's own plugins is visible from here on, and nothing of this is visible to them.
        for folder in {"/var/lib", *(os.path.dirname(path) for path in request["files"])}:
            os.makedirs(folder, exist_ok=True)
            subprocess.run(["mount", "-t", "tmpfs", "k8sdds", folder], check=True)
        assigned = f"{STATE}/networks/{self._configuration['name']}"
        reserved = {f"{assigned}/{address}": b"in use" for address in request["reserved"]}
        files = {path: text.encode() for path, text in request["files"].items()}
        for path, content in {**programs, **reserved, **files}.items():
            os.makedirs(os.path.dirname(path), exist_ok=True)
            Path(path).write_bytes(content)
            os.chmod(path, 0o755)

    def add(self) -> dict[str, dict[str, Any]]:
        """Add all pods at once; return for each when its plugins were called, and why they failed, if they did."""
        return self._at_once("ADD")

    def delete(self) -> dict[str, dict[str, Any]]:
        """Delete all pods; return the same as `add`."""
        return self._at_once("DEL")

    def _at_once(self, command: str) -> dict[str, dict[str, Any]]:
        results: dict[str, dict[str, Any]] = {}
        barrier = threading.Barrier(len(self._pods))

        def call(pod: str) -> None:
            barrier.wait()
            began_s = time.monotonic()
            try:
                error = self._call(command, pod)
            except (OSError, subprocess.TimeoutExpired, ValueError) as failure:
                error = str(failure)
            results[pod] = {"began_s": began_s, "ended_s": time.monotonic(), "error": error}

        threads = [threading.Thread(target=call, args=(pod,)) for pod in self._pods]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results

    def _call(self, command: str, pod: str) -> str:
        """Call all plugins for a pod; return why one failed, or an empty string."""
        environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": pod,
            "CNI_NETNS": f"/run/netns/{pod}",
            "CNI_IFNAME": self._interface,
            "CNI_PATH": PROGRAMS,
        }
        plugins, previous = list(self._configuration["plugins"]), None
        for plugin in plugins if command == "ADD" else reversed(plugins):
            common = {"cniVersion": self._configuration["cniVersion"], "name": self._configuration["name"]}
            # A runtime passes host ports to plugins with this capability, and these pods have none.
            own = {key: value for key, value in plugin.items() if key != "capabilities"}
            text = json.dumps({**common, **own, **({"prevResult": previous} if previous else {})})
            done = subprocess.run(
                [f"{PROGRAMS}/{plugin['type']}"],
                input=text.encode(), env=environment, capture_output=True, timeout=TIMEOUT_S,
            )  # fmt: skip
            if done.returncode:
                return f"{plugin['type']}: {_message(done)}"
            previous = json.loads(done.stdout) if command == "ADD" else None
        return ""


def _message(done: subprocess.CompletedProcess[bytes]) -> str:
    """Return why a plugin failed: its error is JSON on its standard output."""
    try:
        return str(json.loads(done.stdout)["msg"])
    except (ValueError, KeyError, TypeError):
        output = (done.stdout + done.stderr).decode(errors="replace")
        return " ".join(output.split()) or f"exit code {done.returncode}"


def main() -> None:
    """Follow the lines of standard input."""
    node = Node(json.loads(sys.stdin.readline()))
    print("ready", flush=True)
    if not sys.stdin.readline().strip():
        return
    try:
        print(json.dumps(node.add()), flush=True)
        sys.stdin.readline()
    finally:
        print(json.dumps(node.delete()), flush=True)


if __name__ == "__main__":
    main()
