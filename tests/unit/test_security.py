"""Levels, documents, certificates and folders of credentials, judged by OpenSSL where a signature counts."""

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
from k8sdds.model.trial import FIRST_PUBLISHER, SUBSCRIBER, Cell, Participant
from k8sdds.security import directory, documents, levels
from k8sdds.security.credentials import Credentials
from k8sdds.security.file_names import CERTIFICATE, GOVERNANCE, KEY, PERMISSIONS, PERMISSIONS_CA
from k8sdds.security.keyring import Keyring
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
def test_the_papers_levels_are_there(name: str, kinds: tuple[str, str, str]) -> None:
    level = levels.load(name)
    assert level is not None
    assert (level.rtps, level.submessage, level.payload) == kinds
    assert level.access_control and not level.allow_unauthenticated and level.aes_bits == 256


def test_an_unknown_level_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'SignRTPS'"):
        levels.load("SignRTP")
    assert "SignRTP" in contradictions(expanded("SignRTP"))[0].what


def test_no_security_keeps_the_ids_of_cells() -> None:
    (cell,) = expanded("none").cells
    assert cell == Cell(network="host", test="throughput", payload_bytes=1024, layout="split")
    assert "security" not in cell.canonical()


def test_a_level_by_name_by_parts_and_changed() -> None:
    choices = "[SignRTPS, {rtps: SIGN, payload: ENCRYPT, aes_bits: 128}, {level: EncryptRTPS, aes_bits: 128}]"
    cells = expanded(choices).cells
    assert [cell.security for cell in cells] == [
        "SignRTPS", "rtps_SIGN+payload_ENCRYPT+AES-128", "EncryptRTPS+AES-128",
    ]  # fmt: skip
    assert len({cell.cell_id for cell in cells}) == 3
    found = [levels.resolve(cell.security, cell.security_options) for cell in cells]
    assert found == [
        Protection(rtps="SIGN"),
        Protection(rtps="SIGN", payload="ENCRYPT", aes_bits=128),
        Protection(rtps="ENCRYPT", aes_bits=128),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [("{level: none, rtps: SIGN}", "has no parts"), ("{label: x}", "give a level"), ("{rtps: SGN}", "rtps")],
)
def test_meaningless_protections_are_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        expanded(text)


def test_one_label_for_two_protections_is_refused() -> None:
    problems = contradictions(expanded("[{rtps: SIGN, label: a}, {rtps: ENCRYPT, label: a}]"))
    assert "two different protections are labelled 'a'" in problems[0].what


def test_cyclone_is_not_asked_for_what_it_does_not_do() -> None:
    (problem,) = contradictions(expanded("{level: SignRTPS, aes_bits: 128}"))
    assert "Cyclone DDS 0.10 always uses AES-256" in problem.what


def test_governance_has_the_specifications_order() -> None:
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
def test_credentials_are_what_openssl_takes(tmp_path: Path, kind: str) -> None:
    made = Credentials.lasting(timedelta(days=1), DOMAINS, kind)  # type: ignore[arg-type]
    files = made.files(PUB0, Protection(rtps="SIGN"))
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    certificate = x509.load_pem_x509_certificate(files[CERTIFICATE])
    assert certificate.subject.rfc4514_string() == "CN=pub0,O=k8sdds"
    for document in (PERMISSIONS, GOVERNANCE):
        argv = ["openssl", "smime", "-verify", "-text", "-in", document, "-CAfile", PERMISSIONS_CA]
        done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=20)
        assert done.returncode == 0, done.stderr
        root = ElementTree.fromstring(done.stdout.strip().encode())
    assert root.findtext(".//rtps_protection_kind") == "SIGN"
    chain = ["openssl", "verify", "-CAfile", "identity_ca.pem", CERTIFICATE]
    assert subprocess.run(chain, cwd=tmp_path, capture_output=True, timeout=20).returncode == 0


def test_permissions_name_the_roles_topics_and_deny_the_rest() -> None:
    made = Credentials.lasting(timedelta(days=1), DOMAINS)
    made.enrol(SUB3)
    text = made.permissions(SUB3).decode()
    root = ElementTree.fromstring(text[text.index("<?xml") : text.index("</dds>") + 6].encode())
    assert root.findtext(".//subject_name") == "CN=sub3,O=k8sdds"
    assert [t.text for t in root.findall(".//publish//topic")] == ["k8sdds/latency", "k8sdds/announcement"]
    assert [t.text for t in root.findall(".//subscribe//topic")] == [
        "k8sdds/throughput",
        "k8sdds/announcement",
    ]
    assert root.findtext(".//default") == "DENY"


def test_what_is_recorded_holds_no_key() -> None:
    made = Credentials.lasting(timedelta(days=1), DOMAINS)
    key = made.enrol(PUB0).key_pem.decode()
    said = json.dumps(made.facts())
    assert "PRIVATE" not in said
    assert not any(line in said for line in key.splitlines()[1:-1])


def test_expiring_credentials_are_renewed_and_told() -> None:
    told: list[dict] = []
    ring = Keyring([PUB0], DOMAINS, told.append, timedelta(minutes=1))
    before = ring.files(PUB0, Protection())[KEY]
    assert not ring.renew_for(30)
    assert ring.renew_for(120)
    assert ring.files(PUB0, Protection())[KEY] != before
    assert [facts["identity_ca_sha256"] for facts in told] == [ring.facts()["identity_ca_sha256"]]


# -- folders of the user's ----------------------------------------------------------------------------------


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
    return [f"{f.subject}: {f.says}" for f in directory.check(folder, now) if not f.ok]


def test_a_fresh_folder_is_good_and_its_keys_are_private(folder: Path) -> None:
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
    with pytest.raises(InputError, match="exists already"):
        directory.init(folder, [PUB0], 1, "ec", DOMAINS)
    assert (folder / "pub0" / KEY).read_bytes() == before


def test_expiry_is_seen(folder: Path) -> None:
    later = datetime.now(UTC) + timedelta(days=31)
    said = bad(folder, later)
    assert any(line.startswith("pub0/certificate.pem: expired on") for line in said)
    assert any(line.startswith("sub0/permissions.p7s: expired on") for line in said)
    soon = directory.check(folder, datetime.now(UTC) + timedelta(days=25))
    assert all(finding.ok for finding in soon)
    assert any("days: make new ones in time" in finding.says for finding in soon)


def test_a_changed_document_is_seen(folder: Path) -> None:
    path = folder / "governance" / "SignRTPS.p7s"
    path.write_bytes(path.read_bytes().replace(b">SIGN<", b">NONE<"))
    assert bad(folder) == ["governance/SignRTPS.p7s: not signed by permissions_ca.pem, or changed since"]


def test_swapped_and_open_keys_are_seen(folder: Path) -> None:
    (folder / "pub0" / KEY).write_bytes((folder / "sub0" / KEY).read_bytes())
    (folder / "sub0" / KEY).chmod(0o644)
    said = bad(folder)
    assert any("pub0/key.pem: does not belong" in line for line in said)
    assert any("sub0/key.pem: mode 0644" in line for line in said)


def test_a_foreign_participant_is_seen(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    directory.init(other, [PUB0], 1, "ec", DOMAINS)
    for name in (CERTIFICATE, KEY, PERMISSIONS):
        (folder / "pub0" / name).write_bytes((other / "pub0" / name).read_bytes())
    said = bad(folder)
    assert "pub0/certificate.pem: not issued by identity_ca.pem" in said
    assert any(line.startswith("pub0/permissions.p7s: not signed") for line in said)


def test_what_is_no_folder_of_credentials_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a folder of credentials"):
        directory.check(tmp_path)
