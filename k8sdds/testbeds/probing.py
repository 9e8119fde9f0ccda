"""Send known datagrams between pods and nodes, with the commands `answer` and `ask` of the supervisor."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from k8sdds.model.trial import host_and_port
from k8sdds.system import reading
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.shapes import Count, Integer, Shape, Text

PORT = 17900
DEADLINE_S = 60
"""After this time, programs in the pods end by themselves, if k8sdds could not stop them."""
DATAGRAMS = 5
"""Datagrams that show whether packets pass."""
TIMEOUT_S = 0.5

Stop = Callable[[], bytes]
"""Ends a running command and returns its standard output."""


class Place(Protocol):
    """A pod or a node, in which commands run."""

    supervisor: str
    """Path of the supervisor there."""

    def run(self, argv: Sequence[str]) -> bytes:
        """Return the standard output of a command. Raises PrerequisiteError if it failed."""

    def running(self, argv: Sequence[str]) -> AbstractContextManager[Stop]:
        """Run a command that prints `ready` to stderr while the context lasts."""


class Report(Shape):
    """What `k8sdds-supervisor ask` prints."""

    sent: Integer
    answered: Integer
    seen_as: list[str]
    last_error: Text = None
    path_mtu_bytes: Count = None


def new_token() -> str:
    """Return the content that marks the datagrams of one observation."""
    return f"k8sdds-{secrets.token_hex(6)}"


def answering(receiver: Place, token: str, *options: str, port: int = PORT) -> AbstractContextManager[Stop]:
    """Answer datagrams that contain a token while the context lasts."""
    argv = [receiver.supervisor, "answer", "--port", str(port), "--token", token]
    return receiver.running([*argv, "--deadline", str(DEADLINE_S), *options])


def ask(sender: Place, address: str, token: str, timeout_s: float, *options: str, port: int = PORT) -> Report:
    """Send datagrams to an address and return the report about the answers."""
    argv = [sender.supervisor, "ask", "--to", host_and_port(address, port), "--token", token]
    output = sender.run([*argv, "--timeout", f"{timeout_s:.3f}", *options])
    try:
        printed = reading.json_object(output, "ask")
    except reading.UnreadableError as error:
        raise PrerequisiteError(f"`{argv[0]} ask` printed something else: {error.message}") from error
    if (report := Report.of(printed)) is None:
        raise PrerequisiteError(f"`{argv[0]} ask` printed something else: {str(printed)[:80]}")
    return report


def answered(sender: Place, receiver: Place, address: str, count: int = DATAGRAMS, slack_s: float = 0) -> int:
    """Return how many of `count` datagrams to a pod are answered; `slack_s` is the delay of the path, one way."""
    token = new_token()
    with answering(receiver, token):
        return ask(sender, address, token, TIMEOUT_S + 2 * slack_s, "--count", str(count)).answered


def denial(policies: int, node: str, receiver: str) -> str:
    """Describe that NetworkPolicies were verified: they allow what participants send, and nothing that a node sends."""
    noun = "policies deny" if policies > 1 else "policy denies"
    return f"{policies} {noun} what {node} sends to {receiver}"
