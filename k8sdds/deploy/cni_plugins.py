"""Read which CNI plugins the container runtimes of a deployed cluster use: their versions and checksums."""

from __future__ import annotations

from collections.abc import Iterable

from k8sdds.deploy import profiles
from k8sdds.system import reading
from k8sdds.system.ssh import Connections

FOLDER = "/opt/cni/bin"
MAX_VERSION = 200

# A runtime uses the first configuration in the order of the names. A plugin without a command prints its version.
# That of Flannel calls two others (deploy/bundle/cni-flannel, like the one of the Flannel project).
SCRIPT = f"""\
cd /etc/cni/net.d 2>/dev/null || exit 0
config=$(ls *.conflist *.conf *.json 2>/dev/null | LC_ALL=C sort | head -n 1)
[ -n "$config" ] || exit 0
plugins=$(grep -oE '"type" *: *"[A-Za-z0-9_-]+"' "$config" | cut -d '"' -f 4)
case $plugins in *flannel*) plugins="$plugins bridge host-local" ;; esac
for plugin in $(printf '%s\\n' $plugins | sort -u); do
  [ -x "{FOLDER}/$plugin" ] || continue
  sum=$(sha256sum "{FOLDER}/$plugin" | cut -d ' ' -f 1)
  version=$(env -u CNI_COMMAND timeout 5 "{FOLDER}/$plugin" </dev/null 2>&1 | head -n 1)
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
            connections.all(lambda host: host.run(SCRIPT, timeout_s=60).out, connections.hosts).values()
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
