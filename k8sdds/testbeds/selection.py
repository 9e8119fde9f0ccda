"""Store the current testbed, the lab or a cluster, like the current context of kubectl."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from k8sdds import versions
from k8sdds.system import reading
from k8sdds.system.errors import InputError
from k8sdds.system.files import write_atomically
from k8sdds.system.paths import state_folder

LAB = "lab"
CLUSTER = "cluster"


_REMEDY = "select a testbed again: k8sdds testbed lab"


def sibling_image(image: str, name: str) -> str:
    """Return the reference of another k8sdds image in the registry path of `image`, to which all are pushed."""
    return f"{image.rpartition('/')[0]}/{name.rpartition('/')[2]}".lstrip("/")


@dataclass(frozen=True)
class SelectedTestbed:
    """A testbed, and how to reach it."""

    testbed: str = LAB
    name: str = ""
    """Name of a cluster that `deploy` built; empty for other clusters."""
    kubeconfig: str | None = None
    """None means the one that kubectl uses."""
    context: str | None = None
    namespace: str | None = None
    """An existing namespace for all campaigns; None if each campaign creates one."""
    network: str | None = None
    """The installed network, for clusters whose nodes cannot be inspected."""
    image: str = versions.PERFTEST_IMAGE
    image_login: str | None = None
    """File with the login to the registry of the image; None if it requires none, or the nodes have it."""
    tolerate: str = ""
    """Taints KEY:EFFECT, comma-separated. Nodes are used although they have these taints."""
    meter: bool = False
    """Whether resource use of nodes and pods is read around every block, which needs a DaemonSet."""

    @property
    def taints(self) -> tuple[str, ...]:
        """The taints of `tolerate`."""
        return tuple(filter(None, self.tolerate.split(",")))

    def describe(self) -> str:
        """Return a one-line description."""
        if self.testbed == LAB:
            user = "as root" if os.geteuid() == 0 else "without root"
            return f"lab (network namespaces on this machine, {user})"
        built = "built by k8sdds deploy"
        reached = f"kubeconfig {self.kubeconfig}" if self.kubeconfig else "kubectl's kubeconfig"
        parts = [built if self.name else reached]
        parts += [f"context {self.context}"] if self.context else []
        parts += [f"namespace {self.namespace}"] if self.namespace else []
        parts += [f"image login {self.image_login}"] if self.image_login else []
        parts += [f"tolerates {', '.join(self.taints)}"] if self.taints else []
        return f"{f'cluster {self.name}'.rstrip()} ({', '.join(parts)})"

    def options(self) -> list[str]:
        """Return the options of `k8sdds run` that select this testbed."""
        values = {
            "--testbed": self.name or self.testbed, "--kubeconfig": self.kubeconfig, "--context": self.context,
            "--namespace": self.namespace, "--pod-network": self.network,
            "--image": None if self.image == versions.PERFTEST_IMAGE else self.image,
            "--image-login": self.image_login, "--tolerate": self.tolerate,
        }  # fmt: skip
        given = [word for option, value in values.items() if value for word in (option, value)]
        return [*given, "--meter"] if self.meter else given


def file() -> Path:
    """Return the file with the current testbed of this user."""
    return state_folder() / "testbed.json"


def read() -> SelectedTestbed:
    """Return the current testbed; the lab, if none was selected. Raises InputError."""
    try:
        data = reading.json_file(file(), _REMEDY)
    except FileNotFoundError:
        return SelectedTestbed()
    except OSError as error:
        raise InputError(f"cannot read {file()}: {error.strerror}", _REMEDY) from error
    return parse(data)


def parse(data: Any) -> SelectedTestbed:
    """Return a testbed from its JSON form. Raises InputError for invalid data."""
    values = (
        {key: value for key, value in data.items() if value is not None} if isinstance(data, dict) else {}
    )
    known = asdict(SelectedTestbed())
    of_type = all(isinstance(value, bool if key == "meter" else str) for key, value in values.items())
    if values.get("testbed") not in (LAB, CLUSTER) or set(values) - set(known) or not of_type:
        raise InputError(f"{str(data)[:200]} is not a testbed", _REMEDY)
    return SelectedTestbed(**values)


def write(selected: SelectedTestbed) -> None:
    """Store the current testbed."""
    data = {key: value for key, value in asdict(selected).items() if value not in (None, "")}
    write_atomically(file(), json.dumps(data, indent=1) + "\n")


def deselect(name: str) -> None:
    """Select the lab if the deleted cluster `name` is the current testbed."""
    if read().name == name:
        file().unlink(missing_ok=True)


def deployed_kubeconfig(name: str) -> Path | None:
    """Return the kubeconfig of a cluster that `deploy` built; None if there is no such cluster."""
    path = state_folder() / "clusters" / name / "kubeconfig"
    return path if path.is_file() else None


def names() -> list[str]:
    """Return the names of all testbeds."""
    return [LAB, CLUSTER, *deployed_names()]


def deployed_names() -> list[str]:
    """Return the names of the existing clusters that `deploy` built."""
    return sorted(path.parent.name for path in state_folder().glob("clusters/*/kubeconfig"))
