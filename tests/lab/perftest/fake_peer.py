"""Simulate a participant of the raw protocol that stops answering at a given step, to test its peer."""

from __future__ import annotations

import socket
import struct
import threading

MAGIC = b"k8sddsB1"
VERSION = 1
LAYOUT = struct.Struct("<8sBBHHHIIQ8q")
"""An announcement: magic, kind, role, id, receiver, version, process, run, nonce, values."""
SAMPLE = struct.Struct("<IIqiHBBI")
"""The head of a sample: run, sequence, time, ping, publisher, phase, part, length of the payload."""
HELLO, READY, START, ALIVE, END, REPORT, DONE, BYE, ABORT = range(9)
PUBLISHER, SUBSCRIBER = 0, 1
ALL = 0xFFFF
PROCESS = 77


class Announcer:
    """A program on this host that sends the announcements of participant 0 in a role to participant 0 in the other."""

    def __init__(
        self, domain: int, role: int, nonce: int = 0, version: int = VERSION, own_port: bool = False
    ) -> None:
        base = 7400 + 250 * domain + 10
        self.peer = ("127.0.0.1", base + (1 - role))
        self.role, self.nonce, self.version = role, nonce, version
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", base + role if own_port else 0))

    def send(self, kind: int, *values: int, run: int = 0, to: int = ALL) -> None:
        padded = (*values, *([0] * 8))[:8]
        head = (MAGIC, kind, self.role, 0, to, self.version, PROCESS, run, self.nonce)
        self.socket.sendto(LAYOUT.pack(*head, *padded), self.peer)

    def close(self) -> None:
        self.socket.close()


class FakePeer(Announcer):
    """Send HELLO and the announcements in `steps`, then stay silent, like a hung process."""

    def __init__(self, domain: int, role: int, steps: set[int], length: int = 100) -> None:
        super().__init__(domain, role, own_port=True)
        self.steps, self.length = steps, length
        self.received: set[int] = set()
        self.socket.settimeout(0.02)
        self.data = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.data.bind(("127.0.0.1", 0))
        self.run = 4711 if role == PUBLISHER else 0
        self.stopping = threading.Event()
        self.started = threading.Event()  # a subscriber has answered START
        self.thread = threading.Thread(target=self._run)

    def __enter__(self) -> FakePeer:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self.thread.join()
        self.close()
        self.data.close()

    def _hello(self) -> None:
        self.send(HELLO, self.data.getsockname()[1], self.socket.getsockname()[1])

    def _run(self) -> None:
        self._hello()
        while not self.stopping.is_set():
            try:
                message = self.socket.recv(2000)
                self._answer(*LAYOUT.unpack(message)[1:])
            except (TimeoutError, ConnectionError):
                pass
            if HELLO not in self.received:
                self._hello()
            self._announce()

    def _announce(self) -> None:
        if ALIVE in self.steps:
            self.send(ALIVE, run=self.run)
        if self.role == SUBSCRIBER and READY in self.steps and START not in self.received:
            self.send(READY)
        if self.role == PUBLISHER and READY in self.received:
            if START in self.steps:
                self.send(START, 0, 0, 0, self.length, run=self.run)
            if {START, END} <= self.steps:
                self.send(END, run=self.run)
            if ABORT in self.steps:
                self.send(ABORT, 130, run=self.run)

    def _answer(
        self, kind: int, role: int, _id: int, _to: int, _version: int, _process: int, run: int, *_: int
    ) -> None:
        if role == self.role:
            return
        self.received.add(kind)
        if kind == HELLO:
            self._hello()
        if kind == READY and run == self.run:
            self.started.set()
        if kind == START and self.role == SUBSCRIBER and START in self.steps:
            self.run = run
            self.send(READY, run=run)
        if kind == END and REPORT in self.steps:
            self.send(REPORT, 5, 0, 0, 1, 2, run=run)
        if kind == DONE and BYE in self.steps:
            self.send(BYE, run=run)
