"""Test the client with API servers that are unavailable, restart, or are something else, on loopback."""

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


def client_for(server: str, folder: Path) -> KubernetesClient:
    file = folder / "config"
    file.write_text(yaml.safe_dump({**GOOD, "clusters": [{"name": "c", "cluster": {"server": server}}]}))
    client = KubernetesClient.from_kubeconfig(file, None)
    client.outage_timeout_s = 0.2
    return client


def test_an_unreachable_server(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(PrerequisiteError, match="does not answer") as raised:
        client_for(f"https://127.0.0.1:{port}", tmp_path).get("/version")
    assert "cluster is up" in raised.value.remedy


@contextmanager
def serve(answers: Sequence[tuple[int, object]]) -> Iterator[str]:
    """Serve these responses in order, the last one repeatedly; provide the URL."""
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


def test_a_server_that_is_not_an_api_server(tmp_path: Path) -> None:
    with serve([(200, "<html>log in first</html>")]) as url:
        with pytest.raises(PrerequisiteError, match="not that of a Kubernetes API server") as raised:
            client_for(url, tmp_path).get("/version")
        assert "proxy" in raised.value.remedy
    with serve([(501, "<html>no POST here</html>")]) as url, pytest.raises(PrerequisiteError) as raised:
        client_for(url, tmp_path).create("/pods", {})
    assert "proxy" in raised.value.remedy


FORBIDDEN = (403, {"kind": "Status", "message": "pods is forbidden: RBAC: clusterrole not found"})


def test_missing_rights_are_reported_immediately(tmp_path: Path) -> None:
    with serve([FORBIDDEN, (200, {})]) as url, pytest.raises(ApiError, match="forbidden"):
        client_for(url, tmp_path).get("/api/v1/pods")
    with serve([(401, {"message": "Unauthorized"}), (200, {})]) as url, pytest.raises(ApiError) as refused:
        client_for(url, tmp_path).get("/api/v1/pods")
    assert "expired" in refused.value.remedy


def test_missing_rights_are_retried_after_an_outage(tmp_path: Path) -> None:
    starting = (503, {"message": "the server is starting"})
    with serve([(200, {}), starting, FORBIDDEN, FORBIDDEN, (200, {"items": []})]) as url:
        client = client_for(url, tmp_path)
        client.get("/version")
        assert client.get("/api/v1/pods") == {"items": []}
