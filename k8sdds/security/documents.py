"""Write governance and permissions documents: XML in the element order of DDS Security 1.1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from xml.sax.saxutils import escape, quoteattr

from k8sdds.model.security import Protection
from k8sdds.model.trial import Participant

Topics = tuple[str, str, str]
"""Topic names of a perftest program: samples, echoes, announcements."""
OWN_TOPICS: Topics = ("k8sdds/throughput", "k8sdds/latency", "k8sdds/announcement")
"""Topics of k8sdds-perftest."""
RTI_TOPICS: Topics = ("Throughput", "Latency", "Announcement")
"""Topics of RTI's perftest."""

_HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<dds xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'
    ' xsi:noNamespaceSchemaLocation="http://www.omg.org/spec/DDS-SECURITY/20170901/{schema}.xsd">\n'
)


@dataclass(frozen=True)
class Grant:
    """The topics that one participant may use."""

    subject: str
    """Subject name of its certificate in RFC 2253 order, which all middlewares accept."""
    publish: tuple[str, ...]
    """Names or patterns of topics."""
    subscribe: tuple[str, ...]
    """Names or patterns of topics."""

    @classmethod
    def perftest(
        cls, participant: Participant, subject: str, programs: Sequence[Topics] = (OWN_TOPICS,)
    ) -> Grant:
        """Return a grant with exactly the topics that a participant needs to run these programs in its role."""
        samples, echoes, announcements = zip(*programs, strict=True)
        out, back = (samples, echoes) if participant.publishes else (echoes, samples)
        return cls(subject, publish=(*out, *announcements), subscribe=(*back, *announcements))


def governance(protection: Protection, domains: range) -> str:
    """Return the governance document that applies a protection to all topics of these domains.

    The element order of the specification matters: Fast DDS reads the elements sequentially.
    """
    p = protection
    access, liveliness = _flag(p.access_control), _flag(p.liveliness != "NONE")
    lines = [
        "<domain_access_rules>",
        "  <domain_rule>",
        f"    <domains>{_ids(domains)}</domains>",
        f"    <allow_unauthenticated_participants>{_flag(p.allow_unauthenticated)}"
        "</allow_unauthenticated_participants>",
        f"    <enable_join_access_control>{access}</enable_join_access_control>",
        f"    <discovery_protection_kind>{p.discovery}</discovery_protection_kind>",
        f"    <liveliness_protection_kind>{p.liveliness}</liveliness_protection_kind>",
        f"    <rtps_protection_kind>{p.rtps}</rtps_protection_kind>",
        "    <topic_access_rules>",
        "      <topic_rule>",
        "        <topic_expression>*</topic_expression>",
        f"        <enable_discovery_protection>{_flag(p.discovery != 'NONE')}</enable_discovery_protection>",
        f"        <enable_liveliness_protection>{liveliness}</enable_liveliness_protection>",
        f"        <enable_read_access_control>{access}</enable_read_access_control>",
        f"        <enable_write_access_control>{access}</enable_write_access_control>",
        f"        <metadata_protection_kind>{p.submessage}</metadata_protection_kind>",
        f"        <data_protection_kind>{p.payload}</data_protection_kind>",
        "      </topic_rule>",
        "    </topic_access_rules>",
        "  </domain_rule>",
        "</domain_access_rules>",
        "</dds>",
        "",
    ]
    return _HEAD.format(schema="omg_shared_ca_governance") + "\n".join(lines)


def permissions(grant: Grant, domains: range, not_before: datetime, not_after: datetime) -> str:
    """Return the permissions document of one participant. It denies everything that the grant does not allow."""
    lines = [
        "<permissions>",
        f"  <grant name={quoteattr(grant.subject)}>",
        f"    <subject_name>{escape(grant.subject)}</subject_name>",
        "    <validity>",
        f"      <not_before>{_time(not_before)}</not_before>",
        f"      <not_after>{_time(not_after)}</not_after>",
        "    </validity>",
        "    <allow_rule>",
        f"      <domains>{_ids(domains)}</domains>",
        *_topics("publish", grant.publish),
        *_topics("subscribe", grant.subscribe),
        "    </allow_rule>",
        "    <default>DENY</default>",
        "  </grant>",
        "</permissions>",
        "</dds>",
        "",
    ]
    return _HEAD.format(schema="omg_shared_ca_permissions") + "\n".join(lines)


def _topics(verb: str, names: Sequence[str]) -> list[str]:
    if not names:
        return []
    topics = "".join(f"<topic>{escape(name)}</topic>" for name in names)
    return [f"      <{verb}><topics>{topics}</topics></{verb}>"]


def _ids(domains: range) -> str:
    if len(domains) == 1:
        return f"<id>{domains[0]}</id>"
    return f"<id_range><min>{domains[0]}</min><max>{domains[-1]}</max></id_range>"


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _time(moment: datetime) -> str:
    # A time without zone is UTC by the specification. Fast DDS accepts no other format.
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")
