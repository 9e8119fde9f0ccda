"""Detect secrets in files: in their text, in DER, and in what base64 text and compressed files contain.

`k8sdds artifact pack --help` and docs/how-to/publish.md state what is searched for.
"""

from __future__ import annotations

import binascii
import bz2
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any

MAX_LAYERS = 3
MAX_EXPANDED_BYTES = 256 << 20
"""Largest size of what a compressed file contains. A larger one is not searched, and therefore left out."""
MAX_MEMORY_BYTES = 128 << 20
"""Most memory for the expansion of an xz file. One that requires more is not searched, and therefore left out."""
PART_BYTES = 1 << 20
OVERLAP_BYTES = 1 << 16
"""End of a part that is searched again with the next part. Longer than any pattern below."""

_OIDS = {
    "rsaEncryption": "2a864886f70d010101", "RSASSA-PSS": "2a864886f70d01010a", "DH": "2a864886f70d010301",
    "DSA": "2a8648ce380401", "EC": "2a8648ce3d0201", "X25519": "2b656e", "X448": "2b656f",
    "Ed25519": "2b6570", "Ed448": "2b6571",
}  # fmt: skip
_KEY_OIDS = [bytes([6, len(oid) // 2]) + bytes.fromhex(oid) for oid in _OIDS.values()]
_PBES2 = bytes.fromhex("06092a864886f70d01050d")
_PKCS7 = bytes.fromhex("06092a864886f70d0107")
_LENGTH = rb"(?:[\x00-\x7f]|\x81.|\x82..)"


def _compiled(pattern: bytes) -> re.Pattern[bytes]:
    return re.compile(pattern, re.DOTALL)


_PKCS8 = _compiled(
    rb"\x30" + _LENGTH + rb"\x02\x01[\x00\x01](?P<algorithm>\x30" + _LENGTH + rb")"
    rb"(?:" + b"|".join(map(re.escape, _KEY_OIDS)) + rb")"
)  # fmt: skip


def _pkcs8(content: bytes) -> bool:
    """Return whether the content contains a PrivateKeyInfo: version, algorithm, and then an octet string."""
    for match in _PKCS8.finditer(content):
        length = match["algorithm"][1:]
        size = length[0] if len(length) == 1 else int.from_bytes(length[1:], "big")
        # A certificate of version 1 has the same start, but its algorithm is followed by the issuer.
        after = match.end("algorithm") + size
        if content[after : after + 1] == b"\x04":
            return True
    return False


_PATTERNS: list[tuple[str, list[bytes], Callable[[bytes], Any]]] = [
    ("a private key", [b"PRIVATE KEY-----"], re.compile(rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----").search),
    ("a private key", [b"openssh-key-v1\0"], lambda content: True),
    ("a private key", _KEY_OIDS, _pkcs8),
    (
        "an RSA private key", [b"\x02\x01\x00\x02"],
        _compiled(rb"\x30\x82..\x02\x01\x00\x02(?:\x81.|\x82..)\x00[\x80-\xff]").search,
    ),
    (
        "an EC private key", [b"\x02\x01\x01\x04"],
        _compiled(
            rb"\x30" + _LENGTH + rb"\x02\x01\x01\x04"
            rb"(?:\x1c.{28}|\x20.{32}|\x28.{40}|\x30.{48}|\x40.{64}|\x42.{66})[\xa0\xa1]"
        ).search,
    ),
    (
        "an encrypted private key", [_PBES2],
        _compiled(rb"\x30" + _LENGTH + rb"\x30" + _LENGTH + re.escape(_PBES2)).search,
    ),
    (
        "a PKCS#12 key store", [b"\x02\x01\x03\x30"],
        _compiled(rb"\x30(?:\x80|" + _LENGTH + rb")\x02\x01\x03\x30.{1,4}" + re.escape(_PKCS7)).search,
    ),
    (
        "a WireGuard key", [b"PrivateKey", b"PresharedKey"],
        re.compile(rb"(?m)^\s*(PrivateKey|PresharedKey)\s*=\s*[A-Za-z0-9+/]{43}=").search,
    ),
    ("an IPsec pre-shared key", [b"PSK"], re.compile(rb"(?m)^[^#\n]*:\s*PSK\s+(\"|0[sx])").search),
    (
        "the key of a kubeconfig", [b"client-key-data"],
        re.compile(rb"client-key-data\s*\"?:\s*\"?[A-Za-z0-9+/]{16}").search,
    ),
    (
        "a token", [b"eyJ"],
        re.compile(rb"eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}").search,
    ),
]  # fmt: skip
"""Description, byte strings of which one occurs in every match, and the exact test.

The byte strings are found many times as fast as the patterns, and most files contain none of them.
"""

_BASE64 = re.compile(rb"[A-Za-z0-9+/]{40,}(?:(?:\\[nr]|[\r\n\t ])+[A-Za-z0-9+/]{4,})*")
_SEPARATORS = re.compile(rb"\\[nr]|[\r\n\t ]")

_COMPRESSED: dict[bytes, Callable[[], Any]] = {
    b"\x1f\x8b\x08": lambda: zlib.decompressobj(31),
    b"BZh": bz2.BZ2Decompressor,
    b"\xfd7zXZ\0": lambda: lzma.LZMADecompressor(memlimit=MAX_MEMORY_BYTES),
}
_UNSEARCHED = {
    b"PK\3\4": "a ZIP archive", b"\x28\xb5\x2f\xfd": "compressed with Zstandard",
    b"7z\xbc\xaf\x27\x1c": "a 7-Zip archive", b"\x04\x22\x4d\x18": "compressed with LZ4", b"Rar!": "a RAR archive",
}  # fmt: skip


class Search:
    """A search for secrets in one content, which is passed in parts of up to PART_BYTES."""

    def __init__(self, layer: int = 0) -> None:
        self._layer = layer
        self._tail: bytes | None = None
        self._expansion: _Expansion | None = None

    def reason(self, part: bytes) -> str | None:
        """Search the next part; return why the content must not be published, or None."""
        if self._tail is None:
            unsearched = next((what for magic, what in _UNSEARCHED.items() if part.startswith(magic)), None)
            if unsearched:
                return f"it is {unsearched}, which cannot be searched for secrets"
            create = next((each for magic, each in _COMPRESSED.items() if part.startswith(magic)), None)
            self._expansion = _Expansion(create, self._layer) if create else None
        window = (self._tail or b"") + part
        secret = _secret_in(window) or self._in_base64(window)
        self._tail = window[-OVERLAP_BYTES:]
        if secret is None and self._expansion:
            return self._expansion.reason(part)
        return f"it contains {secret}" if secret else None

    def _in_base64(self, window: bytes) -> str | None:
        if self._layer == MAX_LAYERS:
            return None
        for run in _BASE64.finditer(window):
            text = _SEPARATORS.sub(b"", run[0])
            # The overlap may begin within a run, at any of four characters.
            for start in range(4 if self._tail and not run.start() else 1):
                end = len(text) - (len(text) - start) % 4
                reason = Search(self._layer + 1).reason(binascii.a2b_base64(text[start:end]))
                if reason:
                    return f"{reason.removeprefix('it contains ')}, encoded in base64"
        return None


class _Expansion:
    """A search in what a compressed content contains."""

    def __init__(self, decompressor: Callable[[], Any], layer: int) -> None:
        self._create = decompressor
        self._decompressor = decompressor()
        self._inside = Search(layer + 1)
        self._too_deep = layer == MAX_LAYERS
        self._left = MAX_EXPANDED_BYTES
        self._ended = False
        self._needs_memory = False

    def reason(self, part: bytes) -> str | None:
        """Expand and search the next part."""
        if self._too_deep:
            return f"it is compressed more than {MAX_LAYERS} times, and cannot be searched for secrets"
        for expanded in _joined(self._expanded(part)):
            self._left -= len(expanded)
            if self._left < 0:
                size = MAX_EXPANDED_BYTES >> 20
                return f"it is compressed and expands to more than {size} MiB, too much to search for secrets"
            reason = self._inside.reason(expanded)
            if reason:
                return f"{reason}, compressed"
        if self._needs_memory:
            return f"it requires more than {MAX_MEMORY_BYTES >> 20} MiB of memory to be searched for secrets"
        return None

    def _expanded(self, data: bytes) -> Iterator[bytes]:
        """Yield the expanded content of the next part, until an error of the format."""
        while not self._ended:
            try:
                expanded = self._decompressor.decompress(data, PART_BYTES)
            except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError) as error:
                self._ended = True
                self._needs_memory = "Memory usage limit" in str(error)
                return
            yield expanded
            if self._decompressor.eof:
                # Another compressed stream may follow.
                data = self._decompressor.unused_data
                self._decompressor = self._create()
            else:
                data = getattr(self._decompressor, "unconsumed_tail", b"")
            if not data and len(expanded) < PART_BYTES:
                return


def _joined(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Join small parts, because each search repeats the end of the previous one."""
    joined = bytearray()
    for part in parts:
        joined += part
        if len(joined) >= PART_BYTES:
            yield bytes(joined)
            joined.clear()
    if joined:
        yield bytes(joined)


def _secret_in(content: bytes) -> str | None:
    for description, needles, test in _PATTERNS:
        if any(needle in content for needle in needles) and test(content):
            return description
    return None
