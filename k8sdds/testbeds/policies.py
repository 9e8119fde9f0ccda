"""Verify that NetworkPolicies are enforced: they allow what participants send, and nothing that a node sends."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from k8sdds.model.trial import host_and_port
from k8sdds.system import reading
from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds.fingerprint import Place

PORT = 17901
DEADLINE_S = 30
"""After this time, programs in the pods end by themselves, if k8sdds could not stop them."""
DATAGRAMS = 5
TIMEOUT_S = 0.5


def answered(sender: Place, receiver: Place, address: str, count: int = DATAGRAMS, slack_s: float = 0) -> int:
    """Return how many datagrams to a pod were answered.

    Args:
        sender: Sends them.
        receiver: The pod.
        address: Its address.
        count: How many to send.
        slack_s: Delay of the path, one way.

    Raises:
        PrerequisiteError: A program did not run.
        PartFailed: It was killed.
    """
    token = f"k8sdds-{secrets.token_hex(6)}"
    listen = [
        receiver.supervisor,
        "answer",
        "--port",
        str(PORT),
        "--token",
        token,
        "--deadline",
        str(DEADLINE_S),
    ]
    ask = [sender.supervisor, "ask", "--to", host_and_port(address, PORT), "--token", token]
    with receiver.running(listen):
        output = sender.run([*ask, "--count", str(count), "--timeout", f"{TIMEOUT_S + 2 * slack_s:.3f}"])
    try:
        report: Mapping[str, Any] = reading.json_object(output, "ask")
        return int(report["answered"])
    except (reading.UnreadableError, KeyError, TypeError, ValueError) as error:
        raise PrerequisiteError(f"`ask` printed something else: {error}") from error


def proof(count: int, node: str, receiver: str) -> str:
    """Describe what was verified."""
    noun = "policies deny" if count > 1 else "policy denies"
    return f"{count} {noun} what {node} sends to {receiver}"
