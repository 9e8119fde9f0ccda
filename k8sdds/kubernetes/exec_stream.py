"""Run commands in pods over WebSocket streams through the API server. A stream can break at any time."""

from __future__ import annotations

import contextlib
import re
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import websocket
from kubernetes.stream import ws_client

from k8sdds.kubernetes.client import CORE, ApiError, KubernetesClient
from k8sdds.system import reading

CONNECT_TIMEOUT_S = 30
BROKEN = (websocket.WebSocketException, OSError, ssl.SSLError)


class StreamLost(Exception):
    """The stream ended before the exit status of its command arrived."""


@dataclass(frozen=True)
class CommandResult:
    """Exit code and output of a command in a pod."""

    code: int
    stdout: bytes
    stderr: bytes


class ExecStream:
    """A command that runs in a container of a pod, with its stdin, stdout and stderr."""

    def __init__(
        self,
        client: KubernetesClient,
        namespace: str,
        pod: str,
        argv: Sequence[str],
        stdin: bool = False,
        container: str = "",
    ) -> None:
        """Start the command. `container` is required in a pod with several containers.

        Raises ApiError if the pod does not exist or does not accept commands now, StreamLost if the connection failed.
        """
        client.count("exec")
        query: list[tuple[str, str]] = [("command", arg) for arg in argv]
        query += [("stdout", "true"), ("stderr", "true"), *([("stdin", "true")] if stdin else [])]
        query += [("container", container)] if container else []
        url = ws_client.get_websocket_url(
            f"{client.server}{CORE}/namespaces/{namespace}/pods/{pod}/exec", None
        )
        if websocket.getdefaulttimeout() is None:
            websocket.setdefaulttimeout(CONNECT_TIMEOUT_S)
        try:
            self._socket = ws_client.WSClient(
                client.configuration,
                f"{url}?{urlencode(query)}",
                client.headers(),
                capture_all=False,
                binary=True,
            )
        except websocket.WebSocketBadStatusException as error:
            body = getattr(error, "resp_body", None) or b""
            raise ApiError(error.status_code, f"{pod}: {_status_message(body) or error}") from error
        except BROKEN as error:
            raise StreamLost(str(error)) from error
        self._stdout = b""
        self._status = b""
        self.stderr = b""

    def __enter__(self) -> ExecStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the stream. The command may continue to run."""
        with contextlib.suppress(*BROKEN):
            self._socket.close()

    def write(self, data: bytes) -> None:
        """Write to the command's stdin. Raises StreamLost."""
        try:
            self._socket.write_stdin(data)
        except BROKEN as error:
            raise StreamLost(str(error)) from error

    def read_line(self, end: float) -> bytes:
        """Return the next line of stdout without its newline.

        Raises TimeoutError after `end` (monotonic clock, seconds), StreamLost if the stream ended.
        """
        while b"\n" not in self._stdout:
            self._receive(end)
        line, _, self._stdout = self._stdout.partition(b"\n")
        return line

    def read_bytes(self, count: int, end: float) -> bytes:
        """Return the next `count` bytes of stdout. Raises like `read_line`."""
        while len(self._stdout) < count:
            self._receive(end)
        data, self._stdout = self._stdout[:count], self._stdout[count:]
        return data

    def wait_ready(self, end: float) -> None:
        """Wait until the command prints `ready` to stderr. Raises like `read_line`."""
        while b"ready" not in self.stderr.split():
            self._receive(end)

    def _receive(self, end: float) -> None:
        remaining_s = end - time.monotonic()
        if remaining_s <= 0:
            raise TimeoutError
        try:
            self._socket.update(timeout=remaining_s)
            # Reading an empty channel can receive more, and the end: what then is in other channels is read next time.
            is_open = self._socket.is_open()
            received = self._socket.read_channel(ws_client.STDOUT_CHANNEL)
            self.stderr += self._socket.read_channel(ws_client.STDERR_CHANNEL)
            self._status += self._socket.read_channel(ws_client.ERROR_CHANNEL)
        except BROKEN as error:
            raise StreamLost(str(error)) from error
        self._stdout += received
        if not received and not is_open:
            raise StreamLost(self._last_message() or "it ended early")

    def wait(self, end: float) -> CommandResult:
        """Return the exit code and the rest of the output when the command has ended.

        Raises TimeoutError after `end` (monotonic clock, seconds), StreamLost if the stream ended without an exit
        status.
        """
        with contextlib.suppress(StreamLost):
            while True:
                self._receive(end)
        code = self.exit_code
        if code is None:
            raise StreamLost("it ended without an exit status")
        return CommandResult(code, self._stdout, self.stderr)

    @property
    def exit_code(self) -> int | None:
        """Exit code of the command; None if it still runs, or the stream broke before its exit status arrived."""
        return _exit_code(self._status) if self._status else None

    def _last_message(self) -> str:
        return " ".join(
            filter(None, (self.stderr.decode(errors="replace").strip(), _status_message(self._status)))
        )


def run_command(
    client: KubernetesClient,
    namespace: str,
    pod: str,
    argv: Sequence[str],
    timeout_s: float = 30,
    container: str = "",
) -> CommandResult:
    """Run an idempotent command in a pod, as `ExecStream` does; run it again if its stream breaks."""

    def attempt() -> CommandResult:
        try:
            with ExecStream(client, namespace, pod, argv, container=container) as stream:
                return stream.wait(time.monotonic() + timeout_s)
        except (StreamLost, TimeoutError) as error:
            raise OSError(f"{pod}: `{' '.join(argv)}`: {error or 'no answer'}") from error

    return client.retry_outages(attempt)


def _exit_code(status: bytes) -> int:
    fields = _parse_status(status)
    if fields.get("status") == "Success":
        return 0
    details = fields.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    for cause in causes if isinstance(causes, list) else ():
        if isinstance(cause, dict) and cause.get("reason") == "ExitCode":
            message = str(cause.get("message"))
            return int(message) if re.fullmatch("[0-9]{1,3}", message) else 1
    return 1


def _status_message(status: bytes) -> str:
    return str(_parse_status(status).get("message") or "") if status else ""


def _parse_status(status: bytes) -> dict[str, Any]:
    try:
        return reading.json_object(status, "status")
    except reading.UnreadableError:
        return {}
