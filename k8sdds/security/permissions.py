"""What a participant of perftest may publish and subscribe to: the topics of its role, and no others."""

from __future__ import annotations

from k8sdds.security.documents import Grant

OURS = ("k8sdds/throughput", "k8sdds/latency", "k8sdds/announcement")
"""Topics of k8sdds-perftest: samples, their echoes, announcements (see the program's backend.h)."""

RTI = ("Throughput", "Latency", "Announcement")
"""Topics of RTI's own perftest."""

ROLES = ("pub", "sub")


def role_of(participant: str) -> str:
    """`pub` or `sub`, which a participant's name begins with."""
    return participant[:3]


def grant(participant: str, subject: str, sets: tuple[tuple[str, str, str], ...] = (OURS,)) -> Grant:
    """The rights of `pub0`, `sub3` and so on in these sets of topics."""
    samples, echoes, announcements = zip(*sets, strict=True)
    publishes = role_of(participant) == "pub"
    out, back = (samples, echoes) if publishes else (echoes, samples)
    return Grant(subject, publish=(*out, *announcements), subscribe=(*back, *announcements))
