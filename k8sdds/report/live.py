"""Serve the report of a run folder to browsers of this machine, while its campaign runs.

The server reads only the run folder, writes nothing, and answers two addresses: the page and its state. It listens on
127.0.0.1. A request with the name of another host is refused, because a page of another site could otherwise read the
report through a name that resolves to this machine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from typing_extensions import override

from k8sdds.results.run_folder import RunFolder
from k8sdds.system.errors import InputError, K8sddsError

ADDRESS = "127.0.0.1"
TIMEOUT_S = 10
"""Time that a client has to send its request."""

_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class LiveReport:
    """The report of a run folder, rendered again after its files have changed."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._rendered = ("", "")

    def state(self) -> str:
        """Return a text that differs after the campaign has recorded something."""
        sizes = []
        for name in ("campaign.json", "plan.jsonl", "trials.jsonl", "events.jsonl"):
            path = self._run.path / name
            sizes.append(str(path.stat().st_size) if path.is_file() else "-")
        return ".".join(sizes)

    def page(self) -> str:
        """Return the page. Requests that arrive together render it once."""
        from k8sdds.report import content, html

        with self._lock:
            state = self.state()
            if self._rendered[0] != state:
                self._rendered = (state, html.render(content.read(self._run), [], state))
            return self._rendered[1]


class _Handler(BaseHTTPRequestHandler):
    report: LiveReport
    hosts: frozenset[str]
    timeout = TIMEOUT_S
    server_version, sys_version = "k8sdds", ""

    def do_GET(self) -> None:
        """Answer the page or its state, and to HEAD the same without the body."""
        status, kind, text = self._found()
        body = text.encode()
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def _found(self) -> tuple[HTTPStatus, str, str]:
        if self.headers.get_all("Host", []) not in [[host] for host in self.hosts]:
            return HTTPStatus.FORBIDDEN, "text/plain", "open the address that k8sdds printed\n"
        answers: dict[str, tuple[str, Callable[[], str]]] = {
            "/": ("text/html", self.report.page),
            "/state": ("text/plain", self.report.state),
        }
        if self.path not in answers:
            return HTTPStatus.NOT_FOUND, "text/plain", "there is only /\n"
        kind, answer = answers[self.path]
        try:
            return HTTPStatus.OK, kind, answer()
        except (K8sddsError, OSError) as error:
            return HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", f"{error}\n"

    @override
    def log_message(self, format: str, *args: Any) -> None:
        pass  # the terminal shows the address only


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # clients that end a connection early


def server(run: RunFolder, port: int) -> ThreadingHTTPServer:
    """Return a server for the report of a run folder, which listens but does not answer yet.

    Port 0 selects a free one.
    """
    try:
        created = _Server((ADDRESS, port), _Handler)
    except (OSError, OverflowError) as error:
        raise InputError(
            f"cannot listen on {ADDRESS}:{port}: {error}", "choose another --port, or none"
        ) from error
    used = created.server_address[1]
    attributes = {"report": LiveReport(run), "hosts": frozenset((f"{ADDRESS}:{used}", f"localhost:{used}"))}
    created.RequestHandlerClass = type("_RunHandler", (_Handler,), attributes)
    return created
