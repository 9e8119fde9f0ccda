"""Build a program from a clone of a real repository, which git's own server program serves over HTTPS."""

from __future__ import annotations

import http.server
import os
import ssl
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from k8sdds.bundle import golang, official
from k8sdds.bundle.contents import HOST_ARCH, Program, Repository
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.paths import cache_folder

MODULE = "git.example/greeter"
SOURCES = {
    "go.mod": f"module {MODULE}\n\ngo 1.26\n",
    "main.go": 'package main\n\nvar version = "none"\n\nfunc main() { println("greeter", version) }\n',
}


class Handler(http.server.BaseHTTPRequestHandler):
    """Passes requests to `git http-backend`, as a web server does."""

    root: Path

    def do_GET(self) -> None:
        self.answer(b"")

    def do_POST(self) -> None:
        self.answer(self.rfile.read(int(self.headers["Content-Length"])))

    def answer(self, body: bytes) -> None:
        path, _, query = self.path.partition("?")
        variables = {
            "GIT_PROJECT_ROOT": str(self.root), "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path,
            "QUERY_STRING": query, "REQUEST_METHOD": self.command, "CONTENT_LENGTH": str(len(body)),
            "CONTENT_TYPE": self.headers.get("Content-Type", ""), "PATH": os.environ["PATH"],
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""), "HOME": str(self.root),
            # The test may not run as the owner of the repository.
            "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*",
        }  # fmt: skip
        done = subprocess.run(
            ["git", "http-backend"], input=body, env=variables, capture_output=True, timeout=60
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().splitlines())
        self.send_response(int(headers.pop("Status", "200").split()[0]))
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@dataclass(frozen=True)
class Upstream:
    """A repository on a server, and a program that is built from its tag `v1`."""

    program: Program
    server: http.server.ThreadingHTTPServer
    cache: Path
    temporary: Path

    def at_commit(self, commit: str) -> Program:
        assert self.program.repository is not None
        return replace(self.program, repository=replace(self.program.repository, commit=commit))

    def left(self) -> list[str]:
        """Return what a failed build left in the cache and in the folder of temporary files."""
        paths = [*self.cache.rglob("*"), *self.temporary.rglob("*")]
        files = [path for path in paths if path.is_file() and not path.name.endswith(".lock")]
        return sorted(str(path) for path in files if self.cache / "go" not in path.parents)


def git(folder: Path, *argv: str) -> str:
    person = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", "-C", str(folder), *person, *argv], check=True, capture_output=True)
    return done.stdout.decode().strip()


@pytest.fixture
def upstream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Upstream]:
    folder = tmp_path / "served/greeter"
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet")
    for name, text in SOURCES.items():
        (folder / name).write_text(text)
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "one")
    git(folder, "tag", "-a", "v1", "-m", "v1")
    commit = git(folder, "rev-parse", "HEAD")
    (folder / "main.go").write_text("package main\n\nthis is not Go\n")
    git(folder, "commit", "--quiet", "-am", "a later commit, which the tag does not contain")

    pem = tmp_path / "server.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", str(pem), "-out", str(tmp_path / "ca.pem")],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "ca.pem", pem)
    handler = type("Served", (Handler,), {"root": tmp_path / "served"})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()

    # A cache of its own, with Go and its compiled standard library from the usual one.
    cache, go, temporary = tmp_path / "cache", cache_folder() / "go", tmp_path / "temporary"
    golang._toolchain(lambda _: None)
    cache.mkdir()
    temporary.mkdir()
    (cache / "go").symlink_to(go)
    monkeypatch.setenv("K8SDDS_CACHE_DIR", str(cache))
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv(official.VARIABLE, official.AUTO)
    monkeypatch.setenv("GIT_SSL_CAINFO", str(tmp_path / "ca.pem"))
    repository = Repository(f"https://127.0.0.1:{server.server_port}/greeter", "v1", commit, MODULE)
    program = Program("greeter", "1", ".", ".", (("main.version", "v1"),), repository=repository)
    yield Upstream(program, server, cache, temporary)
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_pinned_tag_is_cloned_and_built(upstream: Upstream) -> None:
    notes: list[str] = []
    built = golang.build(upstream.program, HOST_ARCH, notes.append)
    done = subprocess.run([built], capture_output=True, text=True, timeout=30)
    assert done.stderr == "greeter v1\n", done
    assert any("cloning https://127.0.0.1" in note for note in notes)
    # The next build uses the cache, even without the server.
    upstream.server.shutdown()
    assert golang.build(upstream.program, HOST_ARCH, notes.append) == built


def test_another_commit_is_rejected_and_nothing_is_left(upstream: Upstream) -> None:
    with pytest.raises(PrerequisiteError, match=r"refers to the commit .*, not to 0{40}; nothing was built"):
        golang.build(upstream.at_commit("0" * 40), HOST_ARCH, lambda _: None)
    assert upstream.left() == []


def test_a_server_with_an_unknown_certificate_is_rejected(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GIT_SSL_CAINFO")
    with pytest.raises(PrerequisiteError, match=r"cannot clone https://127\.0\.0\.1.*certificate") as caught:
        golang.build(upstream.program, HOST_ARCH, lambda _: None)
    assert "--source greeter=FOLDER" in caught.value.remedy and upstream.left() == []


def test_a_tag_that_the_server_does_not_have_is_reported(upstream: Upstream) -> None:
    assert upstream.program.repository is not None
    repository = replace(upstream.program.repository, tag="v2")
    with pytest.raises(PrerequisiteError, match=r"cannot clone .*refs/tags/v2"):
        golang.build(replace(upstream.program, repository=repository), HOST_ARCH, lambda _: None)
    assert upstream.left() == []
