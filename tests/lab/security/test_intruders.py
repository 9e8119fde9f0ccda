"""Verify that intruders cannot read or inject samples, and that they can without security."""

from __future__ import annotations

import functools
import hashlib
import itertools
import subprocess
import sys

import pytest

from k8sdds.model.security import Protection
from k8sdds.model.trial import Participant
from k8sdds.security import levels
from tests.lab.security.attacks import (
    ABORTING,
    KINDS,
    MATCH_S,
    MIDDLEWARES,
    REFUSED_S,
    WHEN_VALID,
    Field,
    Program,
    intruder,
    new_domain,
)
from tests.sampling import sampled

LEVELS = levels.names()[1:]
SHORT = ("-executionTime", 0.3, "-warmUp", 0.1)
NO_MATCH, MIDDLEWARE_FAILED = 3, 6
HANDSHAKES = 3


def attack(
    field: Field,
    middleware: str,
    protection: Protection | None,
    kind: str,
    by: str = "",
    clock: str = "",
    timeout_s: float = MATCH_S,
) -> tuple[tuple[Program, Program], tuple[Program, Program]]:
    """Run two attacks in parallel, in separate domains.

    `by` is the middleware of the intruder, by default the same.

    Returns:
        (publisher, subscribing intruder) and (publishing intruder, subscriber).
    """
    theirs = {
        role: intruder(kind, role, field.credentials, protection) if protection else None
        for role in ("pub", "sub")
    }
    one, two = new_domain(), new_domain()
    by = by or middleware
    clock = clock or (WHEN_VALID if kind == "expired" else "")
    start = functools.partial(field.start, timeout_s=timeout_s)
    listening = start("-sub", "sub1", "pub0", one, by, protection, theirs["sub"], clock=clock)
    publisher = start(
        "-pub", "pub0", "sub1", one, middleware, protection, field.files("pub0", protection), *SHORT
    )
    subscriber = start("-sub", "sub0", "sub1", two, middleware, protection, field.files("sub0", protection))
    injecting = start("-pub", "sub1", "sub0", two, by, protection, theirs["pub"], *SHORT, clock=clock)
    for program in (listening, publisher, subscriber, injecting):
        program.end()
    return (publisher, listening), (injecting, subscriber)


def succeeds(pairs: tuple[tuple[Program, Program], ...]) -> None:
    for publisher, subscriber in pairs:
        assert (publisher.end(), subscriber.end()) == (0, 0), publisher.err + subscriber.err
        assert subscriber.received == publisher.summary["sent"] > 0


def fails(reading: tuple[Program, Program], injecting: tuple[Program, Program]) -> None:
    for program in (reading[1], injecting[0]):
        assert program.end() in (NO_MATCH, MIDDLEWARE_FAILED), program.err
    for program in (reading[0], injecting[1]):
        # The legitimate program started, and matched no participant.
        assert program.end() == NO_MATCH, program.err
    assert [program.received for program in (reading[1], injecting[1])] == [0, 0]


@pytest.mark.parametrize(("middleware", "by"), list(itertools.product(MIDDLEWARES, MIDDLEWARES)))
def test_without_security_anyone_reads_and_injects(field: Field, middleware: str, by: str) -> None:
    succeeds(attack(field, middleware, None, "no certificate", by))


@pytest.mark.parametrize(
    ("middleware", "level", "kind"), sampled(list(itertools.product(MIDDLEWARES, LEVELS, KINDS)), 5)
)
def test_an_intruder_cannot_read_or_inject(field: Field, middleware: str, level: str, kind: str) -> None:
    fails(*attack(field, middleware, levels.load(level), kind, timeout_s=REFUSED_S))


@pytest.mark.parametrize("middleware", MIDDLEWARES)
def test_peers_reject_an_expired_certificate(field: Field, middleware: str) -> None:
    """The slow clock is not the reason: with a valid certificate, the same program is accepted."""
    protection = levels.load("SignRTPS")
    assert protection is not None
    accepted = attack(field, middleware, protection, "genuine", clock=WHEN_VALID)
    succeeds(accepted)
    reading, injecting = attack(field, middleware, protection, "expired", timeout_s=REFUSED_S)
    fails(reading, injecting)
    assert (reading[1].end(), injecting[0].end()) == (NO_MATCH, NO_MATCH)


@pytest.mark.parametrize(("middleware", "by"), list(itertools.permutations(MIDDLEWARES, 2)))
@pytest.mark.parametrize(("level", "kind"), sampled(list(itertools.product(LEVELS, KINDS)), 1))
def test_an_intruder_with_another_middleware_cannot_read_or_inject(
    field: Field, middleware: str, by: str, level: str, kind: str
) -> None:
    fails(*attack(field, middleware, levels.load(level), kind, by, timeout_s=REFUSED_S))


@pytest.mark.parametrize("level", ["none", "SignRTPS"])
def test_malformed_messages_do_not_end_participants(field: Field, level: str) -> None:
    """Debian's Fast DDS 2.9 aborts when it reads these messages, before it checks signatures."""
    protection, domain = levels.load(level), new_domain()
    targets = [field.address(name) for name in ("pub0", "sub0")]
    attacker = [*field.lab_network.enter("sub1"), sys.executable, "-c", ABORTING, str(domain), *targets]
    field.running.append(subprocess.Popen(attacker))
    subscriber, publisher = (
        field.start(
            f"-{name[:3]}", name, other, domain, "fastdds", protection, field.files(name, protection), *words
        )
        for name, other, words in (("sub0", "pub0", ()), ("pub0", "sub0", SHORT))
    )  # fmt: skip
    succeeds(((publisher, subscriber),))
    assert field.running[0].poll() is None


@pytest.mark.parametrize(("publishes", "subscribes"), list(itertools.permutations(MIDDLEWARES, 2)))
def test_middlewares_interoperate_only_if_cyclonedds_starts_the_handshake(
    field: Field, publishes: str, subscribes: str
) -> None:
    """Change docs/reference/security.md when this test fails because newer releases interoperate."""
    # The participant with the smaller digest of its subject starts the handshake: the digest is part of its GUID.
    digests = {
        middleware: hashlib.sha256(certificate_subject(field, name)).digest()
        for name, middleware in (("pub0", publishes), ("sub0", subscribes))
    }
    matches = min(digests, key=digests.__getitem__) == "cyclonedds"
    expected = [0 if matches else NO_MATCH] * 2
    # On a busy machine, Fast DDS can give up a handshake.
    for _ in range(HANDSHAKES if matches else 1):
        ended, message = interoperate(field, publishes, subscribes, MATCH_S if matches else REFUSED_S)
        if ended == expected:
            break
    assert ended == expected, message


def interoperate(field: Field, publishes: str, subscribes: str, timeout_s: float) -> tuple[list[int], str]:
    """Run a publisher and a subscriber of two middlewares; return their exit codes and the publisher's message."""
    protection, domain = levels.load("SignRTPS"), new_domain()
    programs = [
        field.start(
            f"-{name[:3]}", name, other, domain, middleware, protection, field.files(name, protection), *words,
            timeout_s=timeout_s,
        )
        for name, other, middleware, words in (
            ("sub0", "pub0", subscribes, ()),
            ("pub0", "sub0", publishes, SHORT),
        )
    ]  # fmt: skip
    return [program.end() for program in programs], programs[1].err


def certificate_subject(field: Field, name: str) -> bytes:
    return field.credentials.enroll(Participant.named(name)).certificate.subject.public_bytes()


def test_unauthenticated_participants_join_if_the_governance_allows_it(field: Field) -> None:
    """Shows that the tests above can fail: the intruder without certificate succeeds in such a domain."""
    lax = Protection(allow_unauthenticated=True, access_control=False)
    publisher, subscriber = attack(field, "cyclonedds", lax, "no certificate")[0]
    assert (publisher.end(), subscriber.end()) == (0, 0), publisher.err + subscriber.err
    assert subscriber.received > 0
