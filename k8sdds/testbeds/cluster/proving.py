"""Before anything is measured: pods reach each other, by whole packets and, if asked for, by multicast."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from k8sdds.errors import LackError
from k8sdds.testbeds.cluster.crew import Crew
from k8sdds.testbeds.cluster.pods import Slot

PROBE = "/usr/local/bin/k8sdds-probe"
FIRST_PORT = 17000
GROUP = "239.255.77.1"
LISTEN_S = 20
ASK_S = 8
HEADERS_BYTES = 28
"""IPv4 and UDP."""


def prove(
    crew: Crew, label: str, publishers: Sequence[Slot], subscribers: Sequence[Slot], multicast: bool
) -> None:
    """Datagrams that fill the MTU and may not be fragmented, from each publisher to each subscriber.

    A LackError names the first pair that the network does not carry.
    """
    ports = {slot: FIRST_PORT + index for index, slot in enumerate(subscribers)}
    listen = [
        (slot, [PROBE, "listen", "--udp", str(port), "--for", str(LISTEN_S), "--group", GROUP])
        for slot, port in ports.items()
    ]
    with crew.background(listen):
        questions = []
        for pub in publishers:
            size = (crew.member(pub).mtu_bytes or 1500) - HEADERS_BYTES
            for sub, port in ports.items():
                target = f"{crew.member(sub).address}:{port}"
                whole = ["--whole", "--bytes", str(size), "--count", "3", "--timeout", str(ASK_S)]
                questions.append((pub, sub, [PROBE, "ask", target, *whole]))
                if multicast:
                    group = [
                        "--count",
                        "3",
                        "--timeout",
                        str(ASK_S),
                        "--interface",
                        crew.member(pub).interface,
                    ]
                    questions.append((pub, sub, [PROBE, "ask", f"{GROUP}:{port}", *group]))
        answers = crew.run_all([(pub, argv) for pub, _, argv in questions], ASK_S + 10)
    for (pub, sub, argv), done in zip(questions, answers, strict=True):
        if done.code:
            raise LackError(
                f"{label}: {sub.participant} does not answer {pub.participant}{_how(argv)}: {_said(done)}",
                "is the network's own pod on both nodes ready? kubectl get pods -A -o wide",
            )


def _how(argv: Sequence[str]) -> str:
    if GROUP in argv[2]:
        return " by multicast"
    return f" by whole packets of {int(argv[argv.index('--bytes') + 1]) + HEADERS_BYTES} bytes"


def _said(done) -> str:
    try:
        answer: Mapping[str, object] = json.loads(done.stdout)
        return f"{answer['received']} of {answer['sent']} came back; {answer['last_error']}"
    except (ValueError, KeyError):
        return done.stderr.decode(errors="replace").strip() or f"code {done.code}"
