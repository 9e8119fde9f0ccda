"""Test which secrets are found in files, and that public data is not taken for a secret."""

from __future__ import annotations

import base64
import bz2
import datetime
import gzip
import io
import lzma
import random
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, rsa, x25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    pkcs12,
)

from k8sdds.artifact import secrets
from k8sdds.artifact.secrets import PART_BYTES, Search

RSA = rsa.generate_private_key(65537, 2048)
P256 = ec.generate_private_key(ec.SECP256R1())
KEYS = {
    "RSA": RSA, "P-256": P256, "P-521": ec.generate_private_key(ec.SECP521R1()),
    "Ed25519": ed25519.Ed25519PrivateKey.generate(), "Ed448": ed448.Ed448PrivateKey.generate(),
    "X25519": x25519.X25519PrivateKey.generate(), "DSA": dsa.generate_private_key(1024),
}  # fmt: skip
PASSWORD = BestAvailableEncryption(b"password")
DER = {
    **{
        name: key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
        for name, key in KEYS.items()
    },
    "PKCS#1": RSA.private_bytes(Encoding.DER, PrivateFormat.TraditionalOpenSSL, NoEncryption()),
    "SEC1 P-256": P256.private_bytes(Encoding.DER, PrivateFormat.TraditionalOpenSSL, NoEncryption()),
    "SEC1 P-521": KEYS["P-521"].private_bytes(Encoding.DER, PrivateFormat.TraditionalOpenSSL, NoEncryption()),
    "encrypted": P256.private_bytes(Encoding.DER, PrivateFormat.PKCS8, PASSWORD),
    "PKCS#12": pkcs12.serialize_key_and_certificates(b"name", P256, None, None, PASSWORD),
}
PEM = RSA.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def reason(content: bytes) -> str | None:
    search = Search()
    parts = (content[start : start + PART_BYTES] for start in range(0, len(content), PART_BYTES))
    return next(filter(None, map(search.reason, parts)), None)


def wrapped(content: bytes) -> bytes:
    return base64.encodebytes(content)


ENCODINGS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "base64": base64.b64encode,
    "wrapped base64": wrapped,
    "wrapped base64, indented": lambda content: b"key: |\r\n  " + wrapped(content).replace(b"\n", b"\r\n  "),
    "base64 in JSON": lambda content: b'{"key": "' + wrapped(content).replace(b"\n", b"\\n") + b'"}',
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "second stream": lambda content: gzip.compress(b"first") + gzip.compress(content),
    "base64 of gzip": lambda content: b"data: " + base64.b64encode(gzip.compress(content)),
    "three layers": lambda content: gzip.compress(base64.b64encode(base64.b64encode(content))),
    "large": lambda content: b"x\n" * (PART_BYTES // 2 - 50) + content + b"\n" * PART_BYTES,
    "large base64": lambda content: (
        b".\n" * (PART_BYTES // 2 - 300) + base64.b64encode(b"." * 1600 + content)
    ),
    "large gzip": lambda content: gzip.compress(b"x" * (3 * PART_BYTES - 100) + content + bytes(PART_BYTES)),
    "truncated gzip": lambda content: gzip.compress(content + random.Random(1).randbytes(5000))[:-2000],
}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_keys_are_found_in_each_encoding(encoding: str) -> None:
    keys = {**DER, "PEM": PEM}
    # How a long text is divided does not depend on the key, and compressing it takes long.
    tried = ("PEM", "PKCS#1", "encrypted") if encoding.startswith("large") else keys
    missed = [name for name in tried if not reason(ENCODINGS[encoding](keys[name]))]
    assert missed == []


@pytest.mark.parametrize("magic", [b"PK\3\4", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf\x27\x1c"])
def test_formats_that_are_not_searched_are_left_out(magic: bytes) -> None:
    assert "cannot be searched" in str(reason(magic + b"any content"))


def test_what_cannot_be_searched_completely_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    deep = b"data"
    for _ in range(secrets.MAX_LAYERS + 1):
        deep = gzip.compress(deep)
    assert "more than 3 times" in str(reason(deep))
    monkeypatch.setattr(secrets, "MAX_EXPANDED_BYTES", 10 << 20)
    assert "expands to more than 10 MiB" in str(reason(gzip.compress(bytes(11 << 20), 1)))
    assert reason(gzip.compress(bytes(9 << 20), 1)) is None


def certificate(
    key: ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey, algorithm: hashes.SHA256 | None
) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "k8sdds")])
    day = datetime.datetime(2026, 1, 1)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    return (
        builder.serial_number(1)
        .not_valid_before(day)
        .not_valid_after(day + datetime.timedelta(9))
        .sign(key, algorithm)
    )


def version_1(content: bytes) -> bytes:
    """Return the DER of a certificate without its version, as in certificates of version 1."""
    return content.replace(b"\xa0\x03\x02\x01\x02", b"")


def test_public_data_is_not_a_secret(measured_files: dict[str, bytes]) -> None:
    ed25519_key = ed25519.Ed25519PrivateKey.generate()
    certificates = [certificate(RSA, hashes.SHA256()), certificate(ed25519_key, None)]
    public = [
        key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        for key in KEYS.values()
    ]
    public += [item.public_bytes(Encoding.DER) for item in certificates]
    public += [version_1(item.public_bytes(Encoding.DER)) for item in certificates]
    public += [item.public_bytes(Encoding.PEM) for item in certificates]
    public += [random.Random(seed).randbytes(1 << 18) for seed in range(4)]
    public += [base64.b64encode(item) for item in public]
    public += [gzip.compress(item) for item in public]
    public += list(measured_files.values())
    assert [found for found in map(reason, public) if found] == []


@pytest.fixture
def measured_files(archive: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(archive) as packed:
        return {name: packed.read(name) for name in packed.namelist()}


def test_damaged_compressed_files_cause_no_error() -> None:
    chance = random.Random(7)
    for compress in (gzip.compress, bz2.compress, lzma.compress):
        whole = compress(chance.randbytes(3000) + bytes(100_000))
        for _ in range(200):
            data = bytearray(whole)
            data[chance.randrange(6, len(data))] ^= 1 << chance.randrange(8)
            assert reason(bytes(data[: chance.randrange(6, len(data) + 1)])) is None


def test_many_small_streams_are_searched_in_one_part() -> None:
    streams = io.BytesIO(gzip.compress(b"x") * 20_000 + gzip.compress(PEM)).getvalue()
    assert "private key, compressed" in str(reason(streams))


def test_an_xz_file_that_needs_much_memory_is_left_out() -> None:
    packed = bytearray(lzma.compress(PEM))
    # The stream header has 12 bytes. The block header: size, flags, LZMA2, 1, dictionary size, padding, CRC32.
    end = 12 + (packed[12] + 1) * 4 - 4
    packed[16] = 40
    packed[end : end + 4] = zlib.crc32(packed[12:end]).to_bytes(4, "little")
    assert "more than 128 MiB of memory" in str(reason(bytes(packed)))
