"""Which testbed is the current one, as kubectl has a current context: the lab, or a cluster."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from k8sdds import versions
from k8sdds.system.errors import InputError
from k8sdds.system.files import write_atomically
from k8sdds.system.paths import state_folder

LAB = "lab"
CLUSTER = "cluster"


def beside(image: str, own: str) -> str:
    """One of our images from where another was pushed to: `k8sdds images push` puts all below one path."""
    return f"{image.rpartition('/')[0]}/{own.rpartition('/')[2]}".lstrip("/")


@dataclass(frozen=True)
class SelectedTestbed:
    """A testbed, and how to reach it."""

    testbed: str = LAB
    name: str = ""
    """Of a cluster that `deploy` built; empty for one that was there."""
    kubeconfig: str | None = None
    """None: the one that kubectl takes."""
    context: str | None = None
    namespace: str | None = None
    """A prepared namespace to work in; None: one per campaign."""
    network: str | None = None
    """The installed network, where nobody may ask the nodes for it."""
    image: str = versions.PERFTEST_IMAGE
    meter: bool = False
    """Read nodes and pods around every block, which takes a DaemonSet."""

    def describe(self) -> str:
        """Where it measures, in one line."""
        if self.testbed == LAB:
            return "lab (network namespaces on this machine)"
        if self.name:
            return f"cluster {self.name} (built by k8sdds deploy)"
        parts = [f"kubeconfig {self.kubeconfig}" if self.kubeconfig else "kubectl's kubeconfig"]
        parts += [f"context {self.context}"] if self.context else []
        parts += [f"namespace {self.namespace}"] if self.namespace else []
        return f"cluster ({', '.join(parts)})"


def file() -> Path:
    """Where the current testbed is written down, for this user."""
    return state_folder() / "testbed.json"


def read() -> SelectedTestbed:
    """The current testbed; the lab where none was chosen."""
    try:
        data = json.loads(file().read_text(encoding="utf-8"))
    except FileNotFoundError:
        return SelectedTestbed()
    except (OSError, ValueError) as error:
        raise InputError(f"{file()} cannot be read: {error}", "choose again: k8sdds testbed lab") from error
    return of(data)


def of(data: Any) -> SelectedTestbed:
    """A testbed from its JSON form. InputError for what is none."""
    known = {key: value for key, value in data.items() if value is not None} if isinstance(data, dict) else {}
    if known.get("testbed") not in (LAB, CLUSTER) or set(known) - set(asdict(SelectedTestbed())):
        raise InputError(f"{data!r} names no testbed", "choose again: k8sdds testbed lab")
    return SelectedTestbed(**known)


def write(chosen: SelectedTestbed) -> None:
    """Make a testbed the current one."""
    data = {key: value for key, value in asdict(chosen).items() if value not in (None, "")}
    write_atomically(file(), json.dumps(data, indent=1) + "\n")


def forget(name: str) -> None:
    """Let the lab be current again, where a cluster of this name was that is no more."""
    if read().name == name:
        file().unlink(missing_ok=True)


def deployed(name: str) -> Path | None:
    """The kubeconfig of a cluster that `deploy` built, or None where there is none of this name."""
    path = state_folder() / "clusters" / name / "kubeconfig"
    return path if path.is_file() else None


def deployed_names() -> list[str]:
    """The clusters that `deploy` built and that are still there."""
    return sorted(path.parent.name for path in state_folder().glob("clusters/*/kubeconfig"))
