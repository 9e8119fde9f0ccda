"""The report that a browser shows while a campaign runs."""

import http.client
import socket
import threading

import pytest

from k8sdds.report import live
from k8sdds.system.errors import InputError
from tests import run_folders as folders


@pytest.fixture
def served(tmp_path):
    run = folders.single(tmp_path / "run")
    with live.server(run, 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield run, server.server_address[1]
        server.shutdown()
        thread.join()


def ask(port, path="/", method="GET", host=None):
    connection = http.client.HTTPConnection(live.ADDRESS, port, timeout=60)
    connection.request(method, path, headers={"Host": host or f"127.0.0.1:{port}"})
    answer = connection.getresponse()
    return answer, answer.read().decode()


def test_the_page_shows_results_as_they_arrive_and_nothing_is_written(served):
    run, port = served
    before = sorted(run.path.rglob("*"))
    answer, page = ask(port)
    assert answer.status == 200 and "connect-src 'self'" in page and "new-network" not in page
    state = ask(port, "/state")[1]
    assert f'data-state="{state}"' in page
    item = run.attempts()[0]
    run.append_attempt(item | {"trial_id": "new", "network_label": "new-network"})
    assert ask(port, "/state")[1] != state
    assert "new-network" in ask(port)[1]
    assert sorted(run.path.rglob("*")) == before
    assert ask(port, method="HEAD")[1] == ""


@pytest.mark.parametrize(("question", "status"), [
    *(({"path": path}, 404) for path in (
        "/../trials.jsonl", "/trials.jsonl", "//example.org/", "/?x", "/state/", "/%2e%2e/campaign.json",
    )),
    *(({"method": method}, 501) for method in ("POST", "PUT", "DELETE", "OPTIONS")),
    *(({"host": host}, 403) for host in ("example.org", "127.0.0.1", "localhost:1", "127.0.0.1.example.org:80")),
])  # fmt: skip
def test_other_paths_methods_and_hosts_are_refused(served, question, status):
    answer, text = ask(served[1], **question)
    assert answer.status == status and "trial_id" not in text and "data-state" not in text


def test_damaged_requests_do_not_end_the_server(served):
    port = served[1]
    for request in (
        b"\x00\xff\r\n\r\n",
        b"GET /" + b"x" * 70_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"",
    ):
        with socket.create_connection((live.ADDRESS, port), timeout=60) as client:
            client.sendall(request)
    assert ask(port, "/state")[0].status == 200


def test_a_port_in_use_is_an_input_error(served):
    run, port = served
    with pytest.raises(InputError, match=f"cannot listen on 127.0.0.1:{port}"):
        live.server(run, port)


def test_only_this_machine_can_connect(served):
    assert live.ADDRESS == "127.0.0.1"
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.2", served[1]), timeout=5)
