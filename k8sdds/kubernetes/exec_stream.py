"""Commands in pods: one stream each way over the API server, which may break at any time."""

from __future__ import annotations

import contextlib
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import websocket
import yaml
from kubernetes.stream import ws_client

from k8sdds.kubernetes.client import CORE, Api, ApiRejected

CONNECT_TIMEOUT_S = 30
BROKEN = (websocket.WebSocketException, OSError, ssl.SSLError)


class StreamLost(Exception):
    """The stream ended before the command said that it had."""


@dataclass(frozen=True)
class Done:
    """How a command in a pod ended."""

    code: int
    stdout: bytes
    stderr: bytes


class Stream:
    """A command that runs in a pod's first container, with its stdin, stdout and stderr."""

    def __init__(self, api: Api, namespace: str, pod: str, argv: Sequence[str], stdin: bool = False) -> None:
        """Returns when the command was started. ApiRejected: there is no such pod, or not now."""
        api.count("exec")
        query: list[tuple[str, str]] = [("command", word) for word in argv]
        query += [("stdout", "true"), ("stderr", "true"), *([("stdin", "true")] if stdin else [])]
        url = ws_client.get_websocket_url(f"{api.server}{CORE}/namespaces/{namespace}/pods/{pod}/exec", None)
        before = websocket.getdefaulttimeout()
        if before is None:
            websocket.setdefaulttimeout(CONNECT_TIMEOUT_S)
        try:
            self._socket = ws_client.WSClient(
                api.configuration, f"{url}?{urlencode(query)}", api.headers(), capture_all=False, binary=True
            )
        except websocket.WebSocketBadStatusException as error:
            body = getattr(error, "resp_body", None) or b""
            raise ApiRejected(error.status_code, f"{pod}: {_said(body) or error}") from error
        except BROKEN as error:
            raise StreamLost(str(error)) from error
        self._out = b""
        self._ending = b""
        self.stderr = b""

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of it; the command may go on."""
        with contextlib.suppress(*BROKEN):
            self._socket.close()

    def write(self, data: bytes) -> None:
        """Into the command's stdin."""
        try:
            self._socket.write_stdin(data)
        except BROKEN as error:
            raise StreamLost(str(error)) from error

    def line(self, end: float) -> bytes:
        """The next line of stdout, without its end. TimeoutError when `end` (monotonic) has passed."""
        while b"\n" not in self._out:
            self._more(end)
        line, _, self._out = self._out.partition(b"\n")
        return line

    def take(self, count: int, end: float) -> bytes:
        """The next bytes of stdout."""
        while len(self._out) < count:
            self._more(end)
        taken, self._out = self._out[:count], self._out[count:]
        return taken

    def _more(self, end: float) -> None:
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        try:
            self._socket.update(timeout=left)
            got = self._channel(ws_client.STDOUT_CHANNEL)
            self.stderr += self._channel(ws_client.STDERR_CHANNEL)
            self._ending += self._channel(ws_client.ERROR_CHANNEL)
        except BROKEN as error:
            raise StreamLost(str(error)) from error
        self._out += got
        if not got and not self._socket.is_open():
            raise StreamLost(self._words() or "it ended early")

    def _channel(self, channel: int) -> bytes:
        # Looked at first: reading an empty channel would wait for the socket.
        return self._socket.read_channel(channel) if channel in self._socket._channels else b""

    def wait(self, end: float) -> Done:
        """Read all that it prints, to its end."""
        with contextlib.suppress(StreamLost):
            while True:
                self._more(end)
        if not self._ending:
            raise StreamLost("it ended without a status")
        return Done(_code(self._ending), self._out, self.stderr)

    def _words(self) -> str:
        """What the command and the stream said at the end."""
        return " ".join(filter(None, (self.stderr.decode(errors="replace").strip(), _said(self._ending))))


def run(api: Api, namespace: str, pod: str, argv: Sequence[str], timeout_s: float = 30) -> Done:
    """Run a command that changes nothing in a pod; again where its stream broke. Raises PrerequisiteError."""

    def once() -> Done:
        try:
            with Stream(api, namespace, pod, argv) as stream:
                return stream.wait(time.monotonic() + timeout_s)
        except (StreamLost, TimeoutError) as error:
            raise OSError(f"{pod}: `{' '.join(argv)}`: {error or 'no answer'}") from error

    return api.patiently(once)


def _code(status: bytes) -> int:
    data = _status_object(status)
    if data.get("status") == "Success":
        return 0
    causes = (data.get("details") or {}).get("causes") or []
    return next((int(cause["message"]) for cause in causes if cause.get("reason") == "ExitCode"), 1)


def _said(status: bytes) -> str:
    return str(_status_object(status).get("message") or "") if status else ""


def _status_object(status: bytes) -> dict[str, Any]:
    try:
        data = yaml.safe_load(status)
    except (yaml.YAMLError, UnicodeDecodeError):
        return {}
    return data if isinstance(data, dict) else {}
