"""Publish programs and images as the official servers do, with TLS, in the network namespace of this process.

Usage: python -m tests.deploy.bundle.official_servers FOLDER, which contains server.crt, server.key and files/HOST/PATH. Prints `ready` when the servers
answer. A test enters the namespaces of this process.
"""

from __future__ import annotations

import ctypes
import os
import ssl
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO

from tests.deploy import registries

FILES, REGISTRY = (
    ("127.0.0.2", ("dl.k8s.io", "github.com")),
    ("127.0.0.3", ("registry.k8s.io", "ghcr.io", "registry-1.docker.io")),
)


class Handler(SimpleHTTPRequestHandler):
    def translate_path(self, path: str) -> str:
        return super().translate_path(f"/{self.headers['Host']}{path}")

    def copyfile(self, source: IO[bytes], outputfile: IO[bytes]) -> None:  # type: ignore[override]
        """Send a file; half of it if the file `truncated` exists in the folder of the servers."""
        if (Path(self.directory).parent / "truncated").exists() and not self.path.endswith(".sha256"):
            data = source.read()
            outputfile.write(data[: len(data) // 2])
        else:
            super().copyfile(source, outputfile)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def main() -> None:
    folder = Path(sys.argv[1])
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG: stop with the test
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    hosts = folder / "hosts"
    hosts.write_text(
        "127.0.0.1 localhost\n" + "".join(f"{a} {' '.join(names)}\n" for a, names in (FILES, REGISTRY))
    )
    subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)
    server = ThreadingHTTPServer((FILES[0], 443), partial(Handler, directory=folder / "files"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    settings = folder / "registry.yml"
    tls = f", tls: {{certificate: {folder}/server.crt, key: {folder}/server.key}}"
    settings.write_text(registries.settings(folder / "registry", f"{REGISTRY[0]}:443", tls))
    registry = subprocess.Popen(
        ["docker-registry", "serve", settings], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        preexec_fn=lambda: ctypes.CDLL(None).prctl(1, 9),
    )  # fmt: skip
    registries.await_port((REGISTRY[0], 443))
    print("ready", flush=True)
    os.read(0, 1)  # until the test closes its end
    registry.kill()


main()
