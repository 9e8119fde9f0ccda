"""Test DDS Security with Fast DDS."""

import pytest
from security_files import Files


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Encrypt the payload and discovery, and sign the metadata."""
    return Files(tmp_path_factory.mktemp("security"), data="ENCRYPT", metadata="SIGN", discovery="ENCRYPT")


@pytest.mark.parametrize("algorithm", ["aes-128-gcm", "aes-256-gcm"])
def test_protected_samples_arrive(perftest, files, algorithm):
    aes = ("-secureEncryptionAlgorithm", algorithm)
    subscriber = perftest.sub(*files.options("sub"), *aes, middleware="fastdds")
    publisher = perftest.pub(*files.options("pub"), *aes, middleware="fastdds")
    assert (publisher.end(), subscriber.end()) == (0, 0), publisher.err + subscriber.err
    assert subscriber.k8sdds["received"] == publisher.k8sdds["sent"] > 0
    assert publisher.k8sdds["handshake_s"] > 0 and subscriber.k8sdds["handshake_s"] > 0
    assert "PRIVATE KEY" not in publisher.out + publisher.err + subscriber.out + subscriber.err


def test_unprotected_peer_is_rejected(perftest, files):
    subscriber = perftest.sub("-discoveryTimeout", 2, middleware="fastdds")
    publisher = perftest.pub("-discoveryTimeout", 2, *files.options("pub"), middleware="fastdds")
    assert (publisher.end(), subscriber.end()) == (3, 3), publisher.err + subscriber.err
    assert publisher.k8sdds["handshake_s"] is None
