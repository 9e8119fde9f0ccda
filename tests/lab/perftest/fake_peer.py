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


def announcement(
    kind: int,
    role: int,
    values: tuple[int, ...],
    instance: int,
    run: int = 0,
    nonce: int = 0,
    to: int = ALL,
    version: int = VERSION,
) -> bytes:
    """Return the datagram of an announcement of participant 0."""
    padded = (*values, *([0] * 8))[:8]
    return LAYOUT.pack(MAGIC, kind, role, 0, to, version, instance, run, nonce, *padded)


class FakePeer:
    """Send HELLO and the announcements in `steps`, then stay silent, like a hung process."""

    def __init__(
        self,
        domain: int,
        role: int,
        steps: set[int],
        instance: int = 77,
        length: int = 100,
        nonce: int = 0,
    ) -> None:
        self.nonce = nonce
        self.role, self.steps, self.instance, self.length = role, steps, instance, length
        self.received: set[int] = set()
        base = 7400 + 250 * domain + 10
        self.peer = ("127.0.0.1", base + (1 - role))
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", base + role if instance == 77 else 0))
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
        self.socket.close()
        self.data.close()

    def send(self, kind: int, run: int = 0, *values: int) -> None:
        message = announcement(kind, self.role, values, self.instance, run, self.nonce)
        self.socket.sendto(message, self.peer)

    def _hello(self) -> None:
        self.send(HELLO, 0, self.data.getsockname()[1], self.socket.getsockname()[1], 0)

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
            self.send(ALIVE, self.run)
        if self.role == SUBSCRIBER and READY in self.steps and START not in self.received:
            self.send(READY)
        if self.role == PUBLISHER:
            if START in self.steps and READY in self.received:
                self.send(START, self.run, 0, 0, 0, self.length, 0)
            if END in self.steps and START in self.steps and READY in self.received:
                self.send(END, self.run, 0)
            if ABORT in self.steps and READY in self.received:
                self.send(ABORT, self.run, 130)

    def _answer(
        self, kind: int, role: int, _id: int, _to: int, _version: int, _instance: int, run: int, *_: int
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
            self.send(READY, run)
        if kind == END and REPORT in self.steps:
            self.send(REPORT, run, 5, 0, 0, 1, 2)
        if kind == DONE and BYE in self.steps:
            self.send(BYE, run)
