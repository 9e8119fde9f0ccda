"""An API server that is away, comes back by and by, or is none at all: real servers on loopback."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml

from k8sdds.kubernetes.client import ApiError, KubernetesClient
from k8sdds.system.errors import PrerequisiteError
from tests.unit.test_kubeconfig import GOOD


def of(server: str, folder: Path) -> KubernetesClient:
    file = folder / "config"
    file.write_text(yaml.safe_dump({**GOOD, "clusters": [{"name": "c", "cluster": {"server": server}}]}))
    client = KubernetesClient.from_kubeconfig(file, None)
    client.outage_timeout_s = 0.2
    return client


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(PrerequisiteError, match="does not answer") as raised:
        of(f"https://127.0.0.1:{port}", tmp_path).get("/version")
    assert "cluster is up" in raised.value.remedy


@contextmanager
def serving(answers: Sequence[tuple[int, object]]) -> Iterator[str]:
    """A server that gives these answers one after the other, the last one for ever: its URL."""
    left = list(answers)

    class Server(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = left.pop(0) if len(left) > 1 else left[0]
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode() if isinstance(body, str) else json.dumps(body).encode())

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_server_that_is_no_api_server(tmp_path: Path) -> None:
    with serving([(200, "<html>log in first</html>")]) as url:
        with pytest.raises(PrerequisiteError, match="not that of a Kubernetes API server") as raised:
            of(url, tmp_path).get("/version")
        assert "proxy" in raised.value.remedy
    with serving([(501, "<html>no POST here</html>")]) as url, pytest.raises(PrerequisiteError) as raised:
        of(url, tmp_path).create("/pods", {})
    assert "proxy" in raised.value.remedy


FORBIDDEN = (403, {"kind": "Status", "message": "pods is forbidden: RBAC: clusterrole not found"})


def test_what_is_not_allowed_is_told_at_once(tmp_path: Path) -> None:
    with serving([FORBIDDEN, (200, {})]) as url, pytest.raises(ApiError, match="forbidden"):
        of(url, tmp_path).get("/api/v1/pods")
    with serving([(401, {"message": "Unauthorized"}), (200, {})]) as url, pytest.raises(ApiError) as refused:
        of(url, tmp_path).get("/api/v1/pods")
    assert "expired" in refused.value.remedy


def test_a_server_that_has_just_come_back_may_not_know_its_users_yet(tmp_path: Path) -> None:
    starting = (503, {"message": "the server is starting"})
    with serving([(200, {}), starting, FORBIDDEN, FORBIDDEN, (200, {"items": []})]) as url:
        client = of(url, tmp_path)
        client.get("/version")
        assert client.get("/api/v1/pods") == {"items": []}
