"""Test the client with API servers that are unavailable, restart, or are something else, on loopback."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from kubernetes.stream import ws_client

from k8sdds.kubernetes.client import ApiError, KubernetesClient
from k8sdds.kubernetes.exec_stream import CommandResult, ExecStream
from k8sdds.system.errors import PartFailed, PrerequisiteError
from k8sdds.testbeds.cluster import attempt, failures, installed
from k8sdds.testbeds.cluster.attempt import Attempt
from k8sdds.testbeds.cluster.failures import ReplacedPods, RestartedServers
from k8sdds.testbeds.cluster.watch import NeededPods
from tests.unit.test_kubeconfig import GOOD


def client_for(server: str, folder: Path) -> KubernetesClient:
    file = folder / "config"
    file.write_text(yaml.safe_dump({**GOOD, "clusters": [{"name": "c", "cluster": {"server": server}}]}))
    client = KubernetesClient.from_kubeconfig(file, None)
    client.outage_timeout_s = 0.2
    return client


def unused_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_an_unreachable_server(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match="does not answer") as raised:
        client_for(f"https://127.0.0.1:{unused_port()}", tmp_path).get("/version")
    assert "cluster is up" in raised.value.remedy


def test_a_kubelet_that_the_api_server_does_not_reach_stops_nothing(tmp_path: Path) -> None:
    allowed, static = {"status": {"allowed": True}}, {"kubeletconfig": {"cpuManagerPolicy": "static"}}
    unreachable = {"message": "error trying to reach service: dial tcp"}
    for answers, expected in (
        ([(200, allowed), (200, static)], {"n1": "static"}),
        ([(200, allowed), (503, unreachable), (200, static)], {}),  # not asked again
        ([(200, allowed), (502, "Bad Gateway")], {}),
        ([(200, allowed), (200, "neither JSON")], {}),
    ):
        with serve(answers) as url:
            client = client_for(url, tmp_path)
            assert installed.cpu_managers(client, ["n1"]) == expected
            assert client.calls["get"] == 1


@contextmanager
def serve(answers: Sequence[tuple[int, object]], port: int = 0) -> Iterator[str]:
    """Serve these responses in order, the last one repeatedly; provide the URL."""
    left = list(answers)

    class Server(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = left.pop(0) if len(left) > 1 else left[0]
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode() if isinstance(body, str) else json.dumps(body).encode())

        do_POST = do_DELETE = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", port), Server) as server:
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


@pytest.mark.parametrize("same_port", [True, False])
def test_a_connection_is_restored_at_the_same_or_another_port(tmp_path: Path, same_port: bool) -> None:
    port = unused_port()
    client = client_for(f"http://127.0.0.1:{port}", tmp_path)
    client.outage_timeout_s = 60
    with ExitStack() as forward:
        served = serve([(200, {"gitVersion": "v1"})], port if same_port else 0)
        client.restore_connection = lambda: forward.enter_context(served)
        assert client.get("/version") == {"gitVersion": "v1"}


def test_a_broken_watch_ends_without_an_error_and_restores_the_connection(tmp_path: Path) -> None:
    event = {"type": "ADDED", "object": {}}
    restored: list[str] = []
    with serve([(200, json.dumps(event) + '\n{"type": "MODI')]) as url:
        client = client_for(url, tmp_path)
        client.restore_connection = lambda: restored.append(url)
        assert list(client.watch("/api/v1/pods")) == [event]
    assert restored == [url]


def pod(name: str, uid: str, container: str, namespace: str = "kube-flannel") -> dict[str, object]:
    status = {"containerStatuses": [{"containerID": container, "state": {"running": {}}}]}
    return {"metadata": {"name": name, "namespace": namespace, "uid": uid}, "spec": {}, "status": status}


def test_a_restarted_agent_of_the_network_is_noticed_once(tmp_path: Path) -> None:
    agent, other = pod("kube-flannel-ds-a", "1", "c1"), pod("other", "2", "c2")
    restarted = pod("kube-flannel-ds-a", "1", "c3")
    answers = [(200, {"items": items}) for items in ([agent, other], [agent], [restarted], [restarted])]
    with serve(answers) as url:
        services = NeededPods(client_for(url, tmp_path))
        services.remember(["kube-flannel/kube-flannel-ds-*"])
        assert services.restarted() == ""
        assert services.restarted() == "pod kube-flannel/kube-flannel-ds-a was restarted"
        assert services.restarted() == ""
    with serve([FORBIDDEN]) as url:
        services = NeededPods(client_for(url, tmp_path))
        services.remember(["kube-flannel/kube-flannel-ds-*"])
        assert services.restarted() == "", "this user may not see the agents"


def test_an_agent_that_was_deleted_by_request_does_not_hide_another_one_that_restarted(
    tmp_path: Path,
) -> None:
    deleted, other = pod("kube-flannel-ds-a", "1", "c1"), pod("kube-flannel-ds-b", "2", "c2")
    now = [pod("kube-flannel-ds-c", "3", "c3"), pod("kube-flannel-ds-b", "2", "c4")]
    with serve([(200, {"items": items}) for items in ([deleted, other], now)]) as url:
        services = NeededPods(client_for(url, tmp_path))
        services.remember(["kube-flannel/kube-flannel-ds-*"])
        services.forgive({"kube-flannel/kube-flannel-ds-a"})
        assert services.restarted() == "pod kube-flannel/kube-flannel-ds-b was restarted"
        assert services.restarted() == ""


@pytest.mark.parametrize("for_s", [30, 0.1])
def test_an_interrupted_outage_does_not_wait_for_what_failed(for_s: float, tmp_path: Path) -> None:
    with serve([(200, {"items": [pod("kube-flannel-ds-a", "1", "c1")]})]) as url:
        agents = ["kube-flannel/kube-flannel-ds-*"]
        outage = ReplacedPods("", 0.5, for_s, client_for(url, tmp_path), agents)
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt), outage.running():
            outage.begin(0)
            while not outage.stopped:
                assert time.monotonic() < began + 20, "no agent was deleted"
                time.sleep(0.01)
            time.sleep(0.3)
            raise KeyboardInterrupt
    assert time.monotonic() - began < 30


class Killing:
    """A stream of the command that kills a server."""

    def __init__(self, result: CommandResult) -> None:
        self.result = result

    def __enter__(self) -> Killing:
        return self

    def __exit__(self, *_: object) -> None: ...

    def wait(self, end: float) -> CommandResult:
        return self.result


@pytest.mark.parametrize(
    ("code", "stderr", "why"),
    [
        (0, b"", ""),
        (137, b"", ""),
        (1, b"", ""),
        (1, b"kill: Operation not permitted\n", "kill: Operation not permitted"),
        (127, b"", "exit code 127"),
    ],
)
def test_a_server_that_cannot_be_killed_is_reported(
    code: int, stderr: bytes, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "ExecStream", lambda *_: Killing(CommandResult(code, b"", stderr)))
    servers = RestartedServers("", 0, 0, client_for("http://127.0.0.1:1", tmp_path), ["n/server-0"])
    if not why:
        servers._stop("n/server-0")
        return
    with pytest.raises(PrerequisiteError, match=f"cannot kill the server in pod n/server-0: {why}"):
        servers._stop("n/server-0")


@pytest.mark.parametrize("clean_up_fails", [False, True])
@pytest.mark.parametrize("error", [None, PartFailed("pod sub0: lost"), KeyboardInterrupt()])
def test_what_failed_is_cleaned_up_after_an_attempt_that_was_not_interrupted(
    error: BaseException | None, clean_up_fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[object] = []

    def measured(*_: object) -> str:
        if error:
            raise error
        return "measured"

    def clean_up() -> None:
        steps.append("cleaned up")
        if clean_up_fails:
            raise PrerequisiteError("not ready again")

    failure = SimpleNamespace(clean_up=clean_up, stopped={"n/server-0"})
    ran = object.__new__(Attempt)
    ran._parts = SimpleNamespace(  # type: ignore[assignment]
        pods=None, execution=None, needed_pods=SimpleNamespace(forgive=steps.append)
    )
    ran._trial, ran._slots, ran._folder = SimpleNamespace(cell=None), {}, Path()  # type: ignore[assignment]
    monkeypatch.setattr(attempt.pod_starts, "measure", lambda *_: None)
    monkeypatch.setattr(attempt, "measured", measured)
    monkeypatch.setattr(ran, "_failure", lambda: failure)
    monkeypatch.setattr(ran, "_readings", list)
    if error:
        with pytest.raises(type(error)) as raised:
            ran.run()
        assert raised.value is error
    else:
        assert ran.run() == "measured"
    assert steps == ([] if isinstance(error, KeyboardInterrupt) else ["cleaned up", {"n/server-0"}])


FORBIDDEN = (403, {"kind": "Status", "message": "pods is forbidden: RBAC: clusterrole not found"})
NEW = 'pods "a" is forbidden: error looking up service account n/default: serviceaccount "default" not found'


def test_missing_rights_are_reported_immediately(tmp_path: Path) -> None:
    with serve([FORBIDDEN, (200, {})]) as url, pytest.raises(ApiError, match="forbidden"):
        client_for(url, tmp_path).get("/api/v1/pods")
    with serve([(401, {"message": "Unauthorized"}), (200, {})]) as url, pytest.raises(ApiError) as refused:
        client_for(url, tmp_path).get("/api/v1/pods")
    assert "expired" in refused.value.remedy
    # A new namespace is no outage, after which missing rights are retried.
    refusals = [(403, {"message": NEW}), FORBIDDEN, (200, {})]
    with serve(refusals) as url, pytest.raises(ApiError, match="clusterrole not found"):
        client_for(url, tmp_path).get("/api/v1/pods")


STARTING = (503, {"message": "the server is starting"})


@pytest.mark.parametrize("refusals", [(STARTING, FORBIDDEN, FORBIDDEN), ((403, {"message": NEW}),)])
def test_what_is_not_ready_yet_is_retried(tmp_path: Path, refusals: Sequence[tuple[int, object]]) -> None:
    """A server that has started serves before it loads roles; a new namespace has no ServiceAccount."""
    with serve([(200, {}), *refusals, (200, {"items": []})]) as url:
        client = client_for(url, tmp_path)
        client.get("/version")
        assert client.get("/api/v1/pods") == {"items": []}


class Ending:
    """A socket on which the output and the end of a command arrive while an empty channel is read."""

    def __init__(self) -> None:
        self.channels: dict[int, bytes] = {}
        self.ended = False

    def update(self, timeout: float) -> None: ...

    def is_open(self) -> bool:
        return not self.ended

    def read_channel(self, channel: int) -> bytes:
        if channel == ws_client.STDERR_CHANNEL and not self.ended:
            self.ended = True
            self.channels = {
                ws_client.STDOUT_CHANNEL: b"out",
                ws_client.ERROR_CHANNEL: b'{"status": "Success"}',
            }
        return self.channels.pop(channel, b"")


def test_output_that_arrives_with_the_end_is_not_lost() -> None:
    stream = object.__new__(ExecStream)
    stream._socket, stream._stdout, stream._status, stream.stderr = Ending(), b"", b"", b""
    assert stream.wait(time.monotonic() + 60) == CommandResult(0, b"out", b"")
