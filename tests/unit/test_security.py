"""Security levels, documents, certificates and folders of credentials, verified with OpenSSL."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest
from cryptography import x509

from k8sdds.campaign.expansion import Expansion, expand
from k8sdds.campaign.preflight import contradictions
from k8sdds.model.experiment import Experiment
from k8sdds.model.security import Protection
from k8sdds.model.trial import FIRST_PUBLISHER, SUBSCRIBER, Participant
from k8sdds.security import (
    CERTIFICATE,
    GOVERNANCE,
    KEY,
    PERMISSIONS,
    PERMISSIONS_CA,
    directory,
    documents,
    levels,
)
from k8sdds.security.credentials import Credentials, Keyring
from k8sdds.system import yaml_text
from k8sdds.system.errors import InputError

PAPER = {
    "SignRTPS": ("SIGN", "NONE", "NONE"),
    "SignEncryptData": ("SIGN", "NONE", "ENCRYPT"),
    "SignWithOrigAuthRTPSEncryptData": ("SIGN_WITH_ORIGIN_AUTHENTICATION", "NONE", "ENCRYPT"),
    "SignWithOrigAuthRTPSEncryptSM": ("SIGN_WITH_ORIGIN_AUTHENTICATION", "ENCRYPT", "NONE"),
    "EncryptRTPS": ("ENCRYPT", "NONE", "NONE"),
}
DOMAINS = range(1, 100)
PUB0, SUB3 = FIRST_PUBLISHER, Participant(SUBSCRIBER, 3)


def expanded(security: str) -> Expansion:
    text = f"name: x\nbaseline: host\nsweeps:\n  - networks: [host]\n    security: {security}\n"
    return expand(yaml_text.parse(text, Experiment, "x.yaml"))


@pytest.mark.parametrize(("name", "kinds"), PAPER.items())
def test_the_levels_of_the_paper_exist(name: str, kinds: tuple[str, str, str]) -> None:
    level = levels.load(name)
    assert level is not None
    assert (level.rtps, level.submessage, level.payload) == kinds
    assert level.access_control and not level.allow_unauthenticated and level.aes_bits == 256


def test_an_unknown_level_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'SignRTPS'"):
        levels.load("SignRTP")
    assert "SignRTP" in contradictions(expanded("SignRTP"))[0].what


def test_levels_by_name_by_parts_and_with_changes() -> None:
    choices = "[SignRTPS, {rtps: SIGN, payload: ENCRYPT, aes_bits: 128}, {level: EncryptRTPS, aes_bits: 128}]"
    cells = expanded(choices).cells
    assert [cell.security for cell in cells] == [
        "SignRTPS", "rtps_SIGN+payload_ENCRYPT+AES-128", "EncryptRTPS+AES-128",
    ]  # fmt: skip
    assert len({cell.cell_id for cell in cells}) == 3
    resolved = [levels.resolve(cell.security, cell.security_options) for cell in cells]
    assert resolved == [
        Protection(rtps="SIGN"),
        Protection(rtps="SIGN", payload="ENCRYPT", aes_bits=128),
        Protection(rtps="ENCRYPT", aes_bits=128),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [("{level: none, rtps: SIGN}", "has no parts"), ("{label: x}", "give a level"), ("{rtps: SGN}", "rtps")],
)
def test_invalid_protections_are_rejected(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        expanded(text)


def test_one_label_for_two_protections_is_rejected() -> None:
    problems = contradictions(expanded("[{rtps: SIGN, label: a}, {rtps: ENCRYPT, label: a}]"))
    assert "two different protections are labeled 'a'" in problems[0].what


def test_aes_128_is_rejected_with_cyclone_dds() -> None:
    (problem,) = contradictions(expanded("{level: SignRTPS, aes_bits: 128}"))
    assert "Cyclone DDS 0.10 always uses AES-256" in problem.what


def test_governance_has_the_element_order_of_the_specification() -> None:
    protection = Protection(rtps="SIGN", submessage="ENCRYPT", discovery="ENCRYPT", access_control=False)
    root = ElementTree.fromstring(documents.governance(protection, DOMAINS).encode())
    (rule,) = root.iter("domain_rule")
    assert [element.tag for element in rule] == [
        "domains", "allow_unauthenticated_participants", "enable_join_access_control",
        "discovery_protection_kind", "liveliness_protection_kind", "rtps_protection_kind", "topic_access_rules",
    ]  # fmt: skip
    (topic,) = root.iter("topic_rule")
    assert [(element.tag, element.text) for element in topic] == [
        ("topic_expression", "*"), ("enable_discovery_protection", "true"),
        ("enable_liveliness_protection", "false"), ("enable_read_access_control", "false"),
        ("enable_write_access_control", "false"), ("metadata_protection_kind", "ENCRYPT"),
        ("data_protection_kind", "NONE"),
    ]  # fmt: skip
    assert rule.findtext("domains/id_range/max") == "99"


@pytest.mark.parametrize("kind", ["ec", "rsa"])
def test_openssl_accepts_credentials(tmp_path: Path, kind: str) -> None:
    credentials = Credentials.valid_for(timedelta(days=1), DOMAINS, kind)  # type: ignore[arg-type]
    files = credentials.files(PUB0, Protection(rtps="SIGN"))
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    certificate = x509.load_pem_x509_certificate(files[CERTIFICATE])
    assert certificate.subject.rfc4514_string() == "CN=pub0,O=k8sdds"
    for document in (PERMISSIONS, GOVERNANCE):
        argv = ["openssl", "smime", "-verify", "-text", "-in", document, "-CAfile", PERMISSIONS_CA]
        done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        root = ElementTree.fromstring(done.stdout.strip().encode())
    assert root.findtext(".//rtps_protection_kind") == "SIGN"
    chain = ["openssl", "verify", "-CAfile", "identity_ca.pem", CERTIFICATE]
    assert subprocess.run(chain, cwd=tmp_path, capture_output=True, timeout=60).returncode == 0


def test_permissions_allow_only_the_topics_of_the_role() -> None:
    credentials = Credentials.valid_for(timedelta(days=1), DOMAINS)
    credentials.enroll(SUB3)
    text = credentials.permissions(SUB3).decode()
    root = ElementTree.fromstring(text[text.index("<?xml") : text.index("</dds>") + 6].encode())
    assert root.findtext(".//subject_name") == "CN=sub3,O=k8sdds"
    assert [t.text for t in root.findall(".//publish//topic")] == ["k8sdds/latency", "k8sdds/announcement"]
    assert [t.text for t in root.findall(".//subscribe//topic")] == [
        "k8sdds/throughput",
        "k8sdds/announcement",
    ]
    assert root.findtext(".//default") == "DENY"


def test_recorded_facts_contain_no_key() -> None:
    credentials = Credentials.valid_for(timedelta(days=1), DOMAINS)
    key = credentials.enroll(PUB0).key_pem.decode()
    text = json.dumps(credentials.facts())
    assert "PRIVATE" not in text
    assert not any(line in text for line in key.splitlines()[1:-1])


def test_expiring_credentials_are_renewed() -> None:
    ring = Keyring([PUB0], DOMAINS, timedelta(minutes=1))
    before = ring.files(PUB0, Protection())[KEY]
    assert not ring.renew_for(30)
    assert ring.renew_for(120)
    assert ring.files(PUB0, Protection())[KEY] != before


# -- folders of credentials ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "credentials"
    directory.init(folder, [PUB0, Participant(SUBSCRIBER)], 30, "ec", DOMAINS)
    return folder


@pytest.fixture
def folder(pristine: Path, tmp_path: Path) -> Path:
    subprocess.run(["cp", "-a", str(pristine), str(tmp_path / "c")], check=True)
    return tmp_path / "c"


def bad(folder: Path, now: datetime | None = None) -> list[str]:
    return [f"{result.subject}: {result.message}" for result in directory.check(folder, now) if not result.ok]


def test_a_new_folder_is_valid_and_its_keys_are_private(folder: Path) -> None:
    assert bad(folder) == []
    for key in folder.rglob("*.key"), folder.rglob("key.pem"):
        assert all(path.stat().st_mode & 0o777 == 0o600 for path in key)
    facts = directory.show(folder)
    assert sorted(facts["levels"]) == sorted(PAPER)
    assert "PRIVATE" not in json.dumps(facts)
    assert facts["participants"]["pub0"]["publish"] == [
        "k8sdds/throughput", "Throughput", "k8sdds/announcement", "Announcement",
    ]  # fmt: skip


def test_an_existing_folder_is_not_overwritten(folder: Path) -> None:
    before = (folder / "pub0" / KEY).read_bytes()
    with pytest.raises(InputError, match="already exists"):
        directory.init(folder, [PUB0], 1, "ec", DOMAINS)
    assert (folder / "pub0" / KEY).read_bytes() == before


def test_expiry_is_reported(folder: Path) -> None:
    later = datetime.now(UTC) + timedelta(days=31)
    messages = bad(folder, later)
    assert any(line.startswith("pub0/certificate.pem: expired on") for line in messages)
    assert any(line.startswith("sub0/permissions.p7s: expired on") for line in messages)
    soon = directory.check(folder, datetime.now(UTC) + timedelta(days=25))
    assert all(result.ok for result in soon)
    assert any("days: create new credentials soon" in result.message for result in soon)


def test_a_modified_document_is_reported(folder: Path) -> None:
    path = folder / "governance" / "SignRTPS.p7s"
    path.write_bytes(path.read_bytes().replace(b">SIGN<", b">NONE<"))
    assert bad(folder) == [
        "governance/SignRTPS.p7s: not signed by permissions_ca.pem, or modified after signing"
    ]


def test_swapped_and_readable_keys_are_reported(folder: Path) -> None:
    (folder / "pub0" / KEY).write_bytes((folder / "sub0" / KEY).read_bytes())
    (folder / "sub0" / KEY).chmod(0o644)
    messages = bad(folder)
    assert any("pub0/key.pem: does not belong" in line for line in messages)
    assert any("sub0/key.pem: mode 0644" in line for line in messages)


def test_a_foreign_participant_is_reported(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    directory.init(other, [PUB0], 1, "ec", DOMAINS)
    for name in (CERTIFICATE, KEY, PERMISSIONS):
        (folder / "pub0" / name).write_bytes((other / "pub0" / name).read_bytes())
    messages = bad(folder)
    assert "pub0/certificate.pem: not issued by identity_ca.pem" in messages
    assert any(line.startswith("pub0/permissions.p7s: not signed") for line in messages)


def test_a_folder_without_credentials_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a folder of credentials"):
        directory.check(tmp_path)
