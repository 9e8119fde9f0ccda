"""Run perftest programs, packet captures and intruders in the pods of a lab network."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from k8sdds import security
from k8sdds.middleware.k8sdds_perftest import backends, secure_options
from k8sdds.model.security import Protection
from k8sdds.model.trial import Participant
from k8sdds.perftest import command
from k8sdds.security import authority, documents
from k8sdds.security.authority import Validity
from k8sdds.security.credentials import Credentials
from k8sdds.system.paths import native_program
from k8sdds.testbeds.lab.lab_network import LabNetwork

LIMIT_S = 120
MATCH_S, REFUSED_S = 60, 3
"""How long programs wait for a peer: one that matches, even on a busy machine, and one that never does."""
PATTERN = "a5" * 32
"""Fill pattern of perftest's samples, in hexadecimal."""

MIDDLEWARES = [name for name in ("cyclonedds", "fastdds") if name in backends()]

domains = itertools.count()


@dataclass
class Program:
    """One perftest process in a pod."""

    popen: subprocess.Popen[str]
    out: str = ""
    err: str = ""

    def wait_until_started(self) -> None:
        """Wait until a publisher has matched all subscribers and sends."""
        assert self.popen.stderr is not None
        for line in self.popen.stderr:
            self.err += line
            if "started 1 subscriber" in line:
                return
        raise AssertionError(self.err)

    def end(self) -> int:
        """Wait until the program exits and return its exit code; a timeout fails the test."""
        if self.popen.returncode is None:
            self.out, err = self.popen.communicate(timeout=LIMIT_S)
            self.err += err
        return self.popen.returncode

    @property
    def summary(self) -> dict[str, Any]:
        """The `k8sdds` section of its output; empty without output."""
        self.end()
        return json.loads(self.out)["k8sdds"] if self.out.strip() else {}

    @property
    def received(self) -> int:
        return self.summary.get("received") or 0


@dataclass
class Field:
    """A lab network, and the credentials of its legitimate participants."""

    lab_network: LabNetwork
    credentials: Credentials
    running: list[subprocess.Popen[Any]] = field(default_factory=list)

    def address(self, pod: str) -> str:
        return self.lab_network.plan.datapath.attachments[pod].address

    def start(
        self,
        role: str,
        pod: str,
        peer: str,
        domain: int,
        middleware: str,
        protection: Protection | None,
        files: dict[str, bytes] | None,
        *options: object,
        timeout_s: float = MATCH_S,
        clock: str = "",
    ) -> Program:
        """Start a publisher or a subscriber in a pod.

        `files` enables DDS Security. `clock` shifts the program's clock, such as `-9d`.
        """
        argv = [native_program("k8sdds-perftest"), role, "-middleware", middleware, "-domain", str(domain)]
        argv += [
            "-nic",
            self.lab_network.plan.datapath.attachments[pod].interface,
            "-peer",
            self.address(peer),
        ]
        argv += ["-outputFormat", "json", "-noPrintIntervals", "-peerTimeout", "10"]
        argv += ["-discoveryTimeout", str(timeout_s), "-dataLen", "512", *map(str, options)]
        if files is not None and protection is not None:
            folder = Path("/run/k8sdds") / f"{pod}-{domain}-{role[1:]}"
            self.lab_network.sandbox.put({folder / name: content for name, content in files.items()})
            argv += secure_options(folder, protection)
        if clock:
            argv = ["env", "FAKETIME_DONT_FAKE_MONOTONIC=1", "faketime", "-m", "-f", clock, *argv]
        popen = subprocess.Popen(
            [*self.lab_network.enter(pod), *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.running.append(popen)
        return Program(popen)

    def pair(self, middleware: str, protection: Protection | None, *pub: object) -> tuple[Program, Program]:
        """Start a legitimate publisher in pub0 and a legitimate subscriber in sub0."""
        domain = new_domain()
        files = {name: self.files(name, protection) for name in ("pub0", "sub0")}
        subscriber = self.start("-sub", "sub0", "pub0", domain, middleware, protection, files["sub0"])
        publisher = self.start("-pub", "pub0", "sub0", domain, middleware, protection, files["pub0"], *pub)
        return publisher, subscriber

    def files(self, name: str, protection: Protection | None) -> dict[str, bytes] | None:
        return self.credentials.files(Participant.named(name), protection) if protection else None

    @contextmanager
    def capture(self, place: str, interface: str, program: str, *args: str):
        """Run a Python program that captures packets on a node or in a pod.

        Yields a dict that contains the program's result after the `with` block.
        """
        enter = (
            self.lab_network.enter(place) if place in self.lab_network.pods or place.startswith(("pub", "sub"))
            else self.lab_network.sandbox.enter(place)
        )  # fmt: skip
        capture_process = subprocess.Popen(
            [*enter, sys.executable, "-c", PARSE + program, interface, *args],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.running.append(capture_process)
        assert capture_process.stdout is not None
        assert capture_process.stdout.readline() == "ready\n"
        result: dict[str, Any] = {}
        yield result
        result |= json.loads(capture_process.communicate(timeout=LIMIT_S)[0])

    def end_all(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.kill()
            process.wait()
        self.running.clear()


def new_domain() -> int:
    return command.DOMAINS[next(domains) % len(command.DOMAINS)]


# -- intruders ----------------------------------------------------------------------------------------------

WHEN_VALID = "-9d"
"""Clock of an intruder with an expired certificate.

With the correct clock its own middleware would reject the certificate, and an attacker controls the clock.
"""

KINDS = ("no certificate", "another CA's", "expired", "no permission", "forged permission")


def intruder(kind: str, role: str, genuine: Credentials, protection: Protection) -> dict[str, bytes] | None:
    """Return the files of an intruder in the role `pub` or `sub`; None without DDS Security."""
    name = f"{role}9"
    if kind == "no certificate":
        return None
    if kind == "another CA's":
        return Credentials.valid_for(timedelta(days=1), command.DOMAINS).files(
            Participant.named(name), protection
        )
    now = datetime.now(UTC).replace(microsecond=0)
    expired = Validity(now - timedelta(days=10), now - timedelta(days=8))
    validity = expired if kind == "expired" else genuine.validity
    identity = authority.new_participant(genuine.identity_ca, name, validity)
    topics = (("elsewhere/throughput", "elsewhere/latency", documents.OWN_TOPICS[2]),)
    grant = documents.Grant.perftest(
        Participant.named(name),
        identity.subject,
        topics if kind == "no permission" else (documents.OWN_TOPICS,),
    )
    signer = (
        authority.new_authority("Permissions CA", genuine.validity)
        if kind == "forged permission"
        else genuine.permissions_ca
    )
    allowed = documents.permissions(
        grant, command.DOMAINS, genuine.validity.not_before, genuine.validity.not_after
    )
    return {
        security.IDENTITY_CA: genuine.identity_ca.certificate_pem,
        security.PERMISSIONS_CA: signer.certificate_pem,
        security.CERTIFICATE: identity.certificate_pem,
        security.KEY: identity.key_pem,
        security.PERMISSIONS: authority.sign(signer, allowed),
        security.GOVERNANCE: authority.sign(signer, documents.governance(protection, command.DOMAINS)),
    }


# -- Python programs that capture packets on a node or in a pod ----------------------------------------------

PARSE = """
import collections, hashlib, json, select, socket, sys

def packets(interface, on_packet):
    # Receives all packets of the interface, including sent ones (ETH_P_ALL), until standard input ends.
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(3))
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
    s.bind((interface, 0))
    print("ready", flush=True)
    while True:
        ready = select.select([s, sys.stdin], [], [])[0]
        if s in ready:
            on_packet(s.recv(65536))
        elif sys.stdin in ready:
            break
"""

WIRE = """
pattern = bytes.fromhex(sys.argv[2])
rtps = plain = 0
ids, kinds = collections.Counter(), collections.Counter()

def look(p):
    global rtps, plain
    start = p.find(b"RTPS")
    if start < 0:
        return
    rtps += 1
    plain += pattern in p
    q = start + 20
    while q + 4 <= len(p):
        length = int.from_bytes(p[q + 2:q + 4], "little" if p[q + 1] & 1 else "big")
        ids[hex(p[q])] += 1
        if p[q] in (0x31, 0x33):
            kinds[f"{hex(p[q])}:{p[q + 7]}"] += 1
        if not length:
            break
        q += 4 + length

packets(sys.argv[1], look)
print(json.dumps({"rtps": rtps, "plain": plain, "ids": ids, "kinds": kinds}))
"""
"""Count RTPS packets, packets with the pattern in plain text, submessages and transformation kinds."""

REPLAY = """
source = socket.inet_aton(sys.argv[2])
out = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
done, sent = set(), 0

def again(p):
    global sent
    if len(p) < 500 or p[12:14] != b"\\x08\\x00" or p[26:30] != source or p[23] != 17:
        return
    packet = p[14:]
    digest = hashlib.sha256(packet[28:]).digest()
    if digest in done or sent > 5000:
        return
    done.add(digest)
    packet = packet[:26] + b"\\0\\0" + packet[28:]  # no UDP checksum: it may not be computed yet
    out.sendto(packet, (socket.inet_ntoa(packet[16:20]), 0))
    sent += 1

packets(sys.argv[1], again)
print(json.dumps({"replayed": sent}))
"""
"""Send each large datagram of a source again, unchanged."""

TWICE = """
source = socket.inet_aton(sys.argv[2])
seen = collections.Counter()

def count(p):
    if len(p) > 500 and p[26:30] == source:
        seen[hashlib.sha256(p[42:]).digest()] += 1

packets(sys.argv[1], count)
print(json.dumps({"twice": sum(1 for n in seen.values() if n > 1), "once": len(seen)}))
"""
"""Count datagrams of a source that arrived more than once."""

ABORTING = """
import itertools, socket, struct, sys, time

domain, addresses = int(sys.argv[1]), sys.argv[2:]
header = b"RTPS\\2\\2\\1\\x0f" + bytes(range(12))
pads = struct.pack("<BBH4x", 1, 1, 4) * 500
statistics = struct.pack("<BBH56x4x", 0x80, 1, 56)  # four bytes follow it
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for message in itertools.cycle((header + statistics, header + pads + statistics)):
    for address in addresses:
        for port in range(7410, 7416):
            out.sendto(message, (address, port + 250 * domain))
    time.sleep(0.01)
"""
"""Send Fast DDS participants messages with a statistics submessage that does not end them, until it is killed."""
