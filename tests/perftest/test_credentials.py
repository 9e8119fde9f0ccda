"""What perftest says of credentials that cannot work, before a middleware refuses them in its own words."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from security_files import Files

MIDDLEWARES = ["cyclonedds", "fastdds"]
USAGE = 2


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("security"), rtps="SIGN")


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Credentials of the same names, by other authorities."""
    return Files(tmp_path_factory.mktemp("foreign"), rtps="SIGN")


@pytest.fixture
def files(made: Files, tmp_path: Path) -> Files:
    """A copy that a test may spoil."""
    shutil.copytree(made.folder, tmp_path / "s")
    copy = Files.__new__(Files)
    copy.folder = tmp_path / "s"
    return copy


def expired(files: Files) -> None:
    files.certify("pub", days=-1)


def over(files: Files) -> None:
    files.permit("pub", until="2021-01-01T00:00:00Z")


def altered(files: Files) -> None:
    path = files.folder / "governance.p7s"
    path.write_text(path.read_text().replace("SIGN", "NONE"))


def describe(name: str) -> Callable[[Files], None]:
    return lambda files: (files.folder / name).write_text("hello") and None


def opened(files: Files) -> None:
    (files.folder / "pub.key").chmod(0o640)


SPOILED = [
    (opened, "-securePrivateKey", "other users may read (mode 0640); run chmod 600 on it"),
    (expired, "-secureCertFile", "has expired on"),
    (over, "-securePermissionsFile", "has expired on 2021-01-01T00:00:00Z"),
    (altered, "-secureGovernanceFile", "or was modified after signing"),
    (describe("pub.pem"), "-secureCertFile", "is not a PEM certificate"),
    (describe("pub.key"), "-securePrivateKey", "is not a PEM private key"),
    (describe("identity.pem"), "-secureCertAuthority", "is not a PEM certificate"),
    (describe("governance.p7s"), "-secureGovernanceFile", "is not an S/MIME signed document"),
]


@pytest.mark.parametrize("middleware", MIDDLEWARES)
def test_good_ones_pass(perftest, made: Files, middleware: str) -> None:
    done = perftest.run("-pub", "-check", "-middleware", middleware, *made.options("pub"))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("middleware", MIDDLEWARES)
@pytest.mark.parametrize(("spoil", "option", "told"), SPOILED)
def test_spoiled_files_are_told_by_their_option(
    perftest, files: Files, middleware: str, spoil: Callable[[Files], None], option: str, told: str
) -> None:
    spoil(files)
    refused(perftest, middleware, files.options("pub"), option, told)


@pytest.mark.parametrize("middleware", MIDDLEWARES)
@pytest.mark.parametrize(
    ("option", "name", "told"),
    [
        ("-securePrivateKey", "pub.key", "does not belong to the certificate"),
        ("-secureCertAuthority", "identity.pem", "was not issued by"),
        ("-securePermissionsAuthority", "permissions.pem", "was not signed by"),
        ("-securePermissionsFile", "pub-permissions.p7s", "was not signed by"),
        ("-secureGovernanceFile", "governance.p7s", "was not signed by"),
    ],
)
def test_files_of_another_authority_are_told(
    perftest, made: Files, foreign: Files, middleware: str, option: str, name: str, told: str
) -> None:
    words = made.options("pub", **{option[1:]: foreign.folder / name})
    refused(perftest, middleware, words, "", told)


@pytest.mark.parametrize("middleware", MIDDLEWARES)
def test_permissions_of_another_participant_are_told(perftest, made: Files, middleware: str) -> None:
    words = made.options("pub", securePermissionsFile=made.folder / "sub-permissions.p7s")
    refused(perftest, middleware, words, "-securePermissionsFile", "only for: CN=sub,O=k8sdds test")


def test_fastdds_wants_subject_names_in_the_specifications_order(perftest, files: Files) -> None:
    files.permit("pub", subject="O=k8sdds test,CN=pub")
    words = files.options("pub")
    refused(perftest, "fastdds", words, "-securePermissionsFile", "RFC 2253 order: 'CN=pub,O=k8sdds test'")
    assert perftest.run("-pub", "-check", "-middleware", "cyclonedds", *words).returncode == 0


def test_cyclonedds_has_no_aes_128(perftest, made: Files) -> None:
    words = [*made.options("pub"), "-secureEncryptionAlgorithm", "aes-128-gcm"]
    refused(perftest, "cyclonedds", words, "-secureEncryptionAlgorithm", "always signs and encrypts with AES-256")
    assert perftest.run("-pub", "-check", "-middleware", "fastdds", *words).returncode == 0


def refused(perftest, middleware: str, words: list[object], option: str, told: str) -> None:
    """Both roles would refuse it alike: usage, one line, the option first, before anything is opened."""
    done = perftest.run("-pub", "-middleware", middleware, *words)
    assert done.returncode == USAGE, done.stderr
    assert done.stderr.startswith(f"k8sdds-perftest: {option}")
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""
