"""Read which CNI plugins the container runtimes of a deployed cluster use: their versions and checksums."""

from __future__ import annotations

from collections.abc import Iterable

from k8sdds.deploy import profiles
from k8sdds.system import reading
from k8sdds.system.ssh import Connections

CONFIGURATIONS = "/etc/cni/net.d"
FOLDER = "/opt/cni/bin"
MAX_VERSION = 200


def script(configurations: str = CONFIGURATIONS, folder: str = FOLDER) -> str:
    """Return a script that prints the plugins of a node, one per line: name, checksum, version."""
    # A runtime uses the first configuration in the order of the names. The plugin `flannel` calls `bridge` and
    # `host-local` without naming them in its configuration. A plugin without a command prints its version.
    return f"""\
config=$(ls {configurations}/*.conflist {configurations}/*.conf {configurations}/*.json 2>/dev/null \\
  | LC_ALL=C sort | head -n 1)
[ -n "$config" ] || exit 0
plugins=$(grep -oE '"type" *: *"[A-Za-z0-9_-]+"' "$config" | cut -d '"' -f 4)
if echo "$plugins" | grep -qx flannel; then plugins="$plugins bridge host-local"; fi
printf '%s\\n' $plugins | sort -u | while read -r plugin; do
  [ -f "{folder}/$plugin" ] && [ -x "{folder}/$plugin" ] || continue
  sum=$(sha256sum "{folder}/$plugin" | cut -d ' ' -f 1)
  version=$(env -u CNI_COMMAND timeout 5 "{folder}/$plugin" </dev/null 2>&1 | head -n 1)
  echo "$plugin $sum $version"
done
"""


def read(cluster: str) -> dict[str, str]:
    """Return the plugins that the nodes of a cluster use, by component; several versions are joined.

    Raises:
        PrerequisiteError: A machine does not answer.
    """
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
