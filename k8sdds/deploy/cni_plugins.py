"""Read which CNI plugins the container runtimes of a deployed cluster use: their versions and checksums."""

from __future__ import annotations

from collections.abc import Iterable

from k8sdds.deploy import profiles
from k8sdds.deploy.scripts import shell
from k8sdds.system import reading
from k8sdds.system.ssh import Connections

CONFIGURATIONS = "/etc/cni/net.d"
FOLDER = "/opt/cni/bin"
MAX_VERSION = 200


def script(configurations: str = CONFIGURATIONS, folder: str = FOLDER) -> str:
    """Return a script that prints the plugins of a node, one per line: name, checksum, version."""
    # A runtime uses the first configuration in the order of the names. The plugin `flannel` calls `bridge` and
    # `host-local` without naming them in its configuration. A plugin without a command prints its version.
    return shell("cni_plugins", CONFIGURATIONS=configurations, FOLDER=folder)


def read(cluster: str) -> dict[str, str]:
    """Return the plugins that the nodes of a cluster use, by component; several versions are joined."""
    with Connections(profiles.targets(profiles.deployed(cluster))) as connections:
        return parse(
            connections.all(lambda host: host.run(script(), timeout_s=60).out, connections.hosts).values()
        )


def parse(outputs: Iterable[str]) -> dict[str, str]:
    """Return the plugins in the outputs of the script on each node."""
    found: dict[str, dict[str, None]] = {}
    for line in (line for output in outputs for line in output.splitlines()):
        plugin, _, rest = line.partition(" ")
        checksum, _, version = rest.partition(" ")
        text = reading.one_line(version, MAX_VERSION) or "version not reported"
        found.setdefault(f"CNI plugin {plugin}", {})[f"{text} (sha256:{checksum})"] = None
    return {name: " and ".join(texts) for name, texts in sorted(found.items())}
