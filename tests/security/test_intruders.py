"""Who may not take part receives nothing and cannot inject; without security the same intruder does both."""

from __future__ import annotations

import itertools

import pytest

from k8sdds.model.security import Protection
from k8sdds.security import levels
from tests.security.attacks import KINDS, MIDDLEWARES, Field, Program, intruder, new_domain
from tests.security.choice import sampled

LEVELS = levels.names()[1:]
SHORT = ("-executionTime", 0.3, "-warmUp", 0.1)
NOBODY_MATCHED, MIDDLEWARE_FAILED = 3, 6


def attack(
    field: Field, middleware: str, protection: Protection | None, kind: str
) -> tuple[tuple[Program, Program], tuple[Program, Program]]:
    """Two attacks at once, in domains of their own: (publisher, intruder that subscribes) and (intruder that
    publishes, subscriber)."""
    theirs = {
        role: intruder(kind, role, field.credentials, protection) if protection else None
        for role in ("pub", "sub")
    }
    one, two = new_domain(), new_domain()
    listening = field.start("-sub", "sub1", "pub0", one, middleware, protection, theirs["sub"])
    publisher = field.start(
        "-pub", "pub0", "sub1", one, middleware, protection, field.files("pub0", protection), *SHORT
    )
    subscriber = field.start(
        "-sub", "sub0", "sub1", two, middleware, protection, field.files("sub0", protection)
    )
    injecting = field.start("-pub", "sub1", "sub0", two, middleware, protection, theirs["pub"], *SHORT)
    for program in (listening, publisher, subscriber, injecting):
        program.end()
    return (publisher, listening), (injecting, subscriber)


@pytest.mark.parametrize("middleware", MIDDLEWARES)
def test_without_security_anyone_reads_and_injects(field: Field, middleware: str) -> None:
    for publisher, subscriber in attack(field, middleware, None, "no certificate"):
        assert (publisher.end(), subscriber.end()) == (0, 0), publisher.err + subscriber.err
        assert subscriber.received == publisher.summary["sent"] > 0


@pytest.mark.parametrize(
    ("middleware", "level", "kind"), sampled(list(itertools.product(MIDDLEWARES, LEVELS, KINDS)), 8)
)
def test_an_intruder_gets_nothing_and_injects_nothing(
    field: Field, middleware: str, level: str, kind: str
) -> None:
    reading, injecting = attack(field, middleware, levels.load(level), kind)
    legitimate = reading[0], injecting[1]
    intruding = reading[1], injecting[0]
    for program in intruding:
        assert program.end() in (NOBODY_MATCHED, MIDDLEWARE_FAILED), program.err
    for program in legitimate:
        # It was there and ready, and found nobody whom it may talk to.
        assert program.end() == NOBODY_MATCHED, program.err
    assert [program.received for program in (reading[1], injecting[1])] == [0, 0]


def test_unauthenticated_participants_may_join_only_where_governance_says_so(field: Field) -> None:
    """The same intruder without a certificate, where the domain allows it: the check above can fail."""
    lax = Protection(allow_unauthenticated=True, access_control=False)
    publisher, subscriber = attack(field, "cyclonedds", lax, "no certificate")[0]
    assert (publisher.end(), subscriber.end()) == (0, 0), publisher.err + subscriber.err
    assert subscriber.received > 0
