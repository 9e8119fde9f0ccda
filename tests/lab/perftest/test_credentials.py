"""Test that perftest rejects invalid credentials before the middleware reads them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from security_files import Files

MIDDLEWARES = ["cyclonedds", "fastdds"]
USAGE = 2


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("security"), rtps="SIGN")


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Create credentials with the same names from other authorities."""
    return Files(tmp_path_factory.mktemp("foreign"), rtps="SIGN")


@pytest.fixture
def files(valid: Files, tmp_path: Path) -> Files:
    """Return a copy that a test may damage."""
    shutil.copytree(valid.folder, tmp_path / "s")
    copy = Files.__new__(Files)
    copy.folder = tmp_path / "s"
    return copy


def certificate_expired(files: Files) -> None:
    files.certify("pub", days=-1)


def permissions_expired(files: Files) -> None:
    files.permit("pub", until="2021-01-01T00:00:00Z")


def governance_modified(files: Files) -> None:
    path = files.folder / "governance.p7s"
    path.write_text(path.read_text().replace("SIGN", "NONE"))


def not_a_document(name: str) -> Callable[[Files], None]:
    return lambda files: (files.folder / name).write_text("hello") and None


def key_readable(files: Files) -> None:
    (files.folder / "pub.key").chmod(0o640)


DAMAGED = [
    (key_readable, "-securePrivateKey", "other users may read (mode 0640); run chmod 600 on it"),
    (certificate_expired, "-secureCertFile", "has expired on"),
    (permissions_expired, "-securePermissionsFile", "has expired on 2021-01-01T00:00:00Z"),
    (governance_modified, "-secureGovernanceFile", "or was modified after signing"),
    (not_a_document("pub.pem"), "-secureCertFile", "is not a PEM certificate"),
    (not_a_document("pub.key"), "-securePrivateKey", "is not a PEM private key"),
    (not_a_document("identity.pem"), "-secureCertAuthority", "is not a PEM certificate"),
    (not_a_document("governance.p7s"), "-secureGovernanceFile", "is not an S/MIME signed document"),
]


@pytest.mark.parametrize("middleware", MIDDLEWARES)
def test_valid_credentials(perftest, valid: Files, middleware: str) -> None:
    completed = perftest.run("-pub", "-check", "-middleware", middleware, *valid.options("pub"))
    assert (completed.returncode, completed.stderr) == (0, "")


@pytest.mark.parametrize(("damage", "option", "message"), DAMAGED)
def test_damaged_files_are_reported_by_option(
    perftest, files: Files, damage: Callable[[Files], None], option: str, message: str
) -> None:
    damage(files)
    assert_rejected(perftest, "fastdds", files.options("pub"), option, message)


@pytest.mark.parametrize(
    ("option", "name", "message"),
    [
        ("-securePrivateKey", "pub.key", "does not belong to the certificate"),
        ("-secureCertAuthority", "identity.pem", "was not issued by"),
        ("-securePermissionsAuthority", "permissions.pem", "was not signed by"),
        ("-securePermissionsFile", "pub-permissions.p7s", "was not signed by"),
        ("-secureGovernanceFile", "governance.p7s", "was not signed by"),
    ],
)
def test_files_of_another_authority_are_reported(
    perftest, valid: Files, foreign: Files, option: str, name: str, message: str
) -> None:
    args = valid.options("pub", **{option[1:]: foreign.folder / name})
    assert_rejected(perftest, "cyclonedds", args, "", message)


@pytest.mark.parametrize("middleware", MIDDLEWARES)
def test_permissions_of_another_participant_are_reported(perftest, valid: Files, middleware: str) -> None:
    args = valid.options("pub", securePermissionsFile=valid.folder / "sub-permissions.p7s")
    assert_rejected(perftest, middleware, args, "-securePermissionsFile", "only for: CN=sub0,O=k8sdds test")


def test_fastdds_requires_subject_names_in_rfc_2253_order(perftest, files: Files) -> None:
    files.permit("pub", subject="O=k8sdds test,CN=pub0")
    args = files.options("pub")
    assert_rejected(
        perftest, "fastdds", args, "-securePermissionsFile", "RFC 2253 order: 'CN=pub0,O=k8sdds test'"
    )
    assert perftest.run("-pub", "-check", "-middleware", "cyclonedds", *args).returncode == 0


def test_cyclonedds_does_not_support_aes_128(perftest, valid: Files) -> None:
    args = [*valid.options("pub"), "-secureEncryptionAlgorithm", "aes-128-gcm"]
    assert_rejected(
        perftest, "cyclonedds", args, "-secureEncryptionAlgorithm", "always signs and encrypts with AES-256"
    )
    assert perftest.run("-pub", "-check", "-middleware", "fastdds", *args).returncode == 0


def assert_rejected(perftest, middleware: str, args: list[object], option: str, message: str) -> None:
    """Check for a usage error of one line that starts with the option."""
    completed = perftest.run("-pub", "-middleware", middleware, *args)
    assert completed.returncode == USAGE, completed.stderr
    assert completed.stderr.startswith(f"k8sdds-perftest: {option}")
    assert message in completed.stderr
    assert len(completed.stderr.splitlines()) == 1
    assert completed.stdout == ""
