"""The middleware protocol: a program that publishes and subscribes, with its own vocabulary of settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from k8sdds.discovery import SERVER, Service
from k8sdds.middleware.files import Configuration, ReadyFile, profile
from k8sdds.middleware.ports import Ports
from k8sdds.model.axis import DDS, PROCESS
from k8sdds.model.security import Protection
from k8sdds.model.trial import AXES, Cell
from k8sdds.workloads.program import Command, Program, Surroundings

__all__ = ["SETTINGS", "Command", "Middleware", "Surroundings"]

SETTINGS = frozenset(
    name
    for name, axis in AXES.items()
    if axis.scope in (DDS, PROCESS) and name not in ("middleware", "middleware_config_sha256")
)
"""The settings of trials that only some programs have."""


class Middleware(Program, Protocol):
    """What sends the samples. Each middleware is one module of this package and one line of its registry.

    It need not implement DDS: a program has the settings, files, discovery service and security that it declares.
    """

    name: str
    """The value of `middleware` in experiments and in trials.jsonl."""
    settings: frozenset[str] = frozenset()
    """Those of SETTINGS that the program has. A trial with another value than the default of the others is refused."""
    refusals: Mapping[str, str] = {}
    """Why the program does not have a setting, and what to give instead, where there is more to say."""
    service: Service | None = None
    """The service by which participants discover each other with `discovery: server`; None if it has none."""
    shared_memory: bool = False
    """Whether it can send samples through shared memory."""
    shares_memory_in_one_network: bool = False
    """Whether it shares memory only within one network namespace: its addresses show which peers are on its host."""
    runs_graphs: bool = False
    """Whether its program runs the nodes of graphs."""
    starts_fleets: bool = False
    """Whether its program starts the members of fleets."""
    has_super_clients: bool = False
    """Whether members of its fleets can be super clients of a discovery server."""
    locks_shared_memory: bool = False
    """Whether it locks the memory that it shares, which needs a permission."""
    reference_bytes: int = 0
    """Most bytes that interfaces carry for a sample in shared memory, in packets that state where it is."""
    tcp: bool = False
    """Whether samples that cross a network do so by TCP; otherwise by UDP."""
    auto_message_bytes: int | None = None
    """Largest message with `message_bytes: auto`; None means its default."""
    setup: str = "k8sdds setup"
    """The command that installs or builds it, and its discovery service."""
    reports_match: bool = False
    """Whether its summary states when publisher and subscriber found each other, for `dds` of the test pod-start."""
    config_suffix: str = ".xml"
    """End of the names of its own configuration file and of its QoS profiles."""

    # -- before a campaign ----------------------------------------------------------------------------

    def unsupported(self, cell: Cell) -> str | None:
        """Return why the middleware cannot run this cell on any testbed, or None."""
        for name, axis in AXES.items():
            if name in SETTINGS - self.settings and getattr(cell, name) != axis.default:
                usual = "" if axis.default in (None, "") else f", or set it to {axis.default}"
                what = f"{self.name} does not have the setting {name}: leave it out{usual}"
                return self.refusals.get(name, what)
        return None

    def unsupported_mtu(self, cell: Cell, mtu: int) -> tuple[str, str] | None:
        """Return why the middleware cannot run the cell on a network with this MTU, with a remedy, or None."""
        return None

    def unsupported_protection(self, protection: Protection) -> tuple[str, str] | None:
        """Return why the middleware does not implement a protection, with a remedy, or None."""
        return None

    def takes_qos(self, cell: Cell) -> bool:
        """Whether the cell's QoS profile is passed to the program."""
        return "qos" in self.settings

    def qos_file(self, cell: Cell) -> Path:
        """Return the file of the cell's QoS profile. Raises InputError if the middleware has no such profile."""
        return profile(cell.qos_profile, self.config_suffix, self.name)

    def check_config(self, content: bytes, name: str) -> None:
        """Check the form of its own configuration file. Raises InputError, with the name of the file."""
        return

    def refused_files(self, cell: Cell) -> str | None:
        """Return why the program rejects the cell's QoS profile or configuration file, or None. Runs the program."""
        return None

    def relays(self, cell: Cell) -> bool:
        """Whether all samples of a cell pass a router, which is its discovery service."""
        return cell.discovery_kind == SERVER and self.service is not None and self.service.relays

    def drops(self, cell: Cell) -> bool:
        """Whether a publisher may drop samples instead of sending them, so that none may arrive over perfect links."""
        return False

    def service_command(self, address: str, index: int = 0) -> list[str]:
        """Return the command line of the `index`-th discovery server, which listens on an address in the lab.

        Empty if the server has no program for the lab.
        """
        return []

    # -- after a campaign -----------------------------------------------------------------------------

    def ready_files(self, configuration: Configuration) -> list[ReadyFile]:
        """Return the middleware's own files with which an application uses a measured configuration."""
        return []

    def ports(self, domain: int, processes: int, discovery: str) -> Ports | None:
        """Return the ports of an application's pod with this number of processes, or None if they are unknown.

        Raises InputError if no rule can name them.
        """
        return None

    # -- on a cluster ---------------------------------------------------------------------------------

    def service_image(self) -> str | None:
        """Return the image of the discovery service; None means the image that the service declares."""
        return None

    def service_problems(self) -> list[tuple[str, str]]:
        """Return the prerequisites that the discovery service does not have on a cluster, each with a remedy."""
        return []

    def secret(self, namespace: str) -> dict[str, Any] | None:
        """Return a Secret that the participants' pods need, or None. Raises InputError."""
        return None

    def pod_parts(self) -> dict[str, Any]:
        """Return `volumes` and `volumeMounts` that a participant's pod needs in addition."""
        return {}
