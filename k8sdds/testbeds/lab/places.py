"""Run the commands that observe a network (`testbeds.fingerprint`) in the pods and on the nodes of a lab network."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from typing_extensions import override

from k8sdds.model.placement import crossing
from k8sdds.model.trial import Cell
from k8sdds.networks.datapath import LabPod, Topology
from k8sdds.system import processes
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.paths import native_program
from k8sdds.testbeds.fingerprint import Probed
from k8sdds.testbeds.lab.lab_network import LabNetwork
from k8sdds.testbeds.probing import Place, Stop

COMMAND_TIMEOUT_S = 60


class LabPlace(Place):
    """A pod or a node of a lab network."""

    def __init__(self, name: str, enter: Sequence[str]) -> None:
        """Run nothing yet. `enter`: the command prefix that enters the pod or the node."""
        self.supervisor = native_program("k8sdds-supervisor")
        self._name = name
        self._enter = enter

    @override
    def run(self, argv: Sequence[str]) -> bytes:
        try:
            done = subprocess.run([*self._enter, *argv], capture_output=True, timeout=COMMAND_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise PrerequisiteError(f"{self._name}: `{argv[0]}` timed out") from error
        self._require_success(argv, done.returncode, done.stderr)
        return done.stdout

    @override
    @contextmanager
    def running(self, argv: Sequence[str]) -> Iterator[Stop]:
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                [*self._enter, *argv], stdin=subprocess.PIPE, stdout=output, stderr=subprocess.PIPE
            )

            def stop() -> bytes:
                _, errors = process.communicate()
                self._require_success(argv, process.returncode, errors)
                output.seek(0)
                return output.read()

            assert process.stderr is not None
            try:
                first = process.stderr.readline()
                if first.strip() != b"ready":
                    self._require_success(argv, process.wait(), first + process.stderr.read())
                yield stop
            finally:
                if process.poll() is None:
                    process.communicate()

    def _require_success(self, argv: Sequence[str], code: int, stderr: bytes) -> None:
        processes.require_not_killed(code, f"{self._name}: `{argv[0]}`")
        if code:
            message = " ".join(stderr.decode(errors="replace").split())
            raise PrerequisiteError(f"{self._name}: {message or f'`{argv[0]}` failed'}")


def ends(cell: Cell, topology: Topology) -> tuple[LabPod, LabPod]:
    """Return the pods of the first publisher and subscriber that are on different nodes."""
    pods = {pod.participant: pod for pod in topology.pods}
    pair = crossing(cell, {participant: pod.node for participant, pod in pods.items()})
    assert pair is not None, "preflight checks refuse such a placement"
    return pods[pair[0]], pods[pair[1]]


def probed(lab_network: LabNetwork) -> Probed:
    """Return what a network is observed between: the pods of `ends`."""
    link = lab_network.plan.cell.link
    topology, attachments = lab_network.plan.topology, lab_network.plan.datapath.attachments
    sender, receiver = ends(lab_network.plan.cell, topology)
    node = topology.nodes[sender.node].name
    return Probed(
        sender=LabPlace(sender.name, lab_network.enter(sender.name)),
        sender_address=attachments[sender.name].address,
        sender_interface=attachments[sender.name].interface,
        mtu_bytes=lab_network.plan.datapath.mtu,
        receiver=LabPlace(receiver.name, lab_network.enter(receiver.name)),
        receiver_address=attachments[receiver.name].address,
        receiver_interface=attachments[receiver.name].interface,
        peer=topology.nodes[receiver.node].address,
        node=LabPlace(node, lab_network.sandbox.enter(node)),
        slack_s=link.longest_delay_us / 1e6,
        loses_packets=link.loses_packets,
    )
