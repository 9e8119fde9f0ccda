"""Create certificate authorities, participant certificates and S/MIME signatures."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import pkcs7
from cryptography.x509.oid import NameOID

KeyKind = Literal["ec", "rsa"]
"""EC P-256 or RSA 2048, the key types of the built-in authentication plugin: DDS Security 1.1, section 9.3.1."""

ORGANIZATION = "k8sdds"


@dataclass(frozen=True)
class Validity:
    """The time span in which certificates and permissions are valid."""

    not_before: datetime
    not_after: datetime

    def covers(self, start: datetime, end: datetime) -> bool:
        """Return whether the time span contains everything from `start` to `end`."""
        return self.not_before <= start and end <= self.not_after


@dataclass(frozen=True)
class Identity:
    """A private key and its certificate."""

    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
    certificate: x509.Certificate

    @property
    def key_pem(self) -> bytes:
        """The private key in unencrypted PKCS #8: write it only to a file of mode 0600."""
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    @property
    def certificate_pem(self) -> bytes:
        """The certificate in PEM encoding."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def subject(self) -> str:
        """Subject name in RFC 2253 order: `CN=…,O=…`."""
        return subject_of(self.certificate)


def new_key(kind: KeyKind = "ec") -> ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey:
    """Generate a private key."""
    return ec.generate_private_key(ec.SECP256R1()) if kind == "ec" else rsa.generate_private_key(65537, 2048)


def new_authority(name: str, validity: Validity, kind: KeyKind = "ec") -> Identity:
    """Create a self-signed authority that may sign certificates and documents.

    Documents need the key usage digitalSignature: RFC 8550, section 4.4.2.
    """
    key = new_key(kind)
    subject = _name(name)
    builder = _builder(subject, subject, key, validity)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    builder = builder.add_extension(
        x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
    )
    return Identity(key, builder.sign(key, hashes.SHA256()))


def new_participant(authority: Identity, name: str, validity: Validity, kind: KeyKind = "ec") -> Identity:
    """Create a participant's key and certificate, which the identity authority signs."""
    key = new_key(kind)
    builder = _builder(_name(name), authority.certificate.subject, key, validity)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
    return Identity(key, builder.sign(authority.key, hashes.SHA256()))


def sign(authority: Identity, document: str) -> bytes:
    """Sign a document with S/MIME (multipart/signed with text/plain): DDS Security 1.1, section 9.4.1."""
    builder = pkcs7.PKCS7SignatureBuilder().set_data(document.encode())
    builder = builder.add_signer(authority.certificate, authority.key, hashes.SHA256())
    options = [pkcs7.PKCS7Options.DetachedSignature, pkcs7.PKCS7Options.Text]
    return builder.sign(serialization.Encoding.SMIME, options)


def fingerprint(certificate: x509.Certificate) -> str:
    """Return the SHA-256 fingerprint of a certificate in hexadecimal."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def subject_of(certificate: x509.Certificate) -> str:
    """Return the subject name of a certificate in RFC 2253 order."""
    return certificate.subject.rfc4514_string()


def _name(common: str) -> x509.Name:
    # RFC 2253 reverses the order, so O comes first in the list for a string that begins with CN.
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION),
            x509.NameAttribute(NameOID.COMMON_NAME, common),
        ]
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey,
    validity: Validity,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(validity.not_before.astimezone(UTC))
        .not_valid_after(validity.not_after.astimezone(UTC))
    )


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True, key_cert_sign=signs_certificates, crl_sign=signs_certificates,
        content_commitment=False, key_encipherment=False, data_encipherment=False, key_agreement=False,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip
