"""What a participant of perftest may publish and subscribe to: the topics of its role, and no others."""

from __future__ import annotations

from k8sdds.model.trial import Participant
from k8sdds.security.documents import Grant

OURS = ("k8sdds/throughput", "k8sdds/latency", "k8sdds/announcement")
"""Topics of k8sdds-perftest: samples, their echoes, announcements (see the program's backend.h)."""

RTI = ("Throughput", "Latency", "Announcement")
"""Topics of RTI's own perftest."""


def grant(participant: Participant, subject: str, sets: tuple[tuple[str, str, str], ...] = (OURS,)) -> Grant:
    """Return the rights of a participant in these sets of topics."""
    samples, echoes, announcements = zip(*sets, strict=True)
    out, back = (samples, echoes) if participant.publishes else (echoes, samples)
    return Grant(subject, publish=(*out, *announcements), subscribe=(*back, *announcements))
