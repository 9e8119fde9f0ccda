"""Run the registry of images on the loopback interface."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def settings(folder: Path | str, address: str, more: str = "") -> str:
    """Return the settings of a registry with its data in a folder; `more`: further keys of `http`."""
    return (
        "version: 0.1\nlog: {level: error}\n"
        f"storage: {{filesystem: {{rootdirectory: {folder}/data}}}}\nhttp: {{addr: '{address}'{more}}}\n"
    )


def htpasswd(path: Path, login: str) -> None:
    """Write a file of the users of a registry: one, with USER:PASSWORD."""
    user, _, password = login.partition(":")
    script = "print crypt($ARGV[0], q{$2b$05$abcdefghijklmnopqrstuu})"
    done = subprocess.run(["perl", "-e", script, password], check=True, capture_output=True, text=True)
    path.write_text(f"{user}:{done.stdout}\n")


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """Yield the address of a registry without TLS and users."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = free.getsockname()
    path = folder / "open.yml"
    path.write_text(settings(folder, f"127.0.0.1:{address[1]}"))
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(["docker-registry", "serve", path], **quiet) as process:
        try:
            await_port(address)
            yield f"127.0.0.1:{address[1]}"
        finally:
            process.kill()


def await_port(address: tuple[str, int]) -> None:
    """Wait until a server listens."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(address) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(f"nothing listens on {address}")


def certificate(folder: Path, *names: str) -> None:
    """Write server.crt, a certificate of these host names that clients have to trust, and server.key."""
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", "server.key")
    hosts = ("-subj", f"/CN={names[0]}", "-addext", "subjectAltName=" + ",".join(f"DNS:{n}" for n in names))
    argv = ["openssl", "req", "-x509", "-days", "2", *key, *hosts, "-out", "server.crt"]
    subprocess.run(argv, check=True, capture_output=True, cwd=folder)
