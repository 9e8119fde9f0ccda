"""Damage documents: bytes anywhere, or values of a JSON or YAML document."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Sequence
from typing import Any

HOSTILE: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 10**30, 10**400, -(10**400), 0.5, -0.5, 1e308, 5e-324, 1e18,
    float("nan"), float("inf"), -float("inf"), "", "fast", "-1", "1e999", "a [/b] c", "[bold]x", "\x1b[31mred", "\x00",
    "\ud800", "\udfff", "\u202eevil", "\ufeff", "a\nb", "a\r\nb", "a\u2028b", "x" * 120, "x" * 400, "é" * 300, "$\\frac$",
    "$x$", "_x", "<script>alert(1)</script>", "]]>", "&lt;", "'\"", "../../etc/passwd", "/dev/zero", "~", "{{ 7*7 }}",
    "%s%n", "=1+1", "2026-11-22T10:00:00Z", "9999-12-31T23:59:59Z", "host", "flannel-vxlan", "unicast", [], {}, [[]],
    [None], [1, "a"], {"": {}}, {"a": [1]}, {"a": None}, [{"a": 1}] * 3, "9" * 5000, [0] * 300,
    {"rate_mbit": "fast"}, {"count": -1}, {"name": []}, {"x" * 300: 1},
]  # fmt: skip
"""Values in place of others: wrong types, impossible numbers, and text that means something to another program."""

SNIPPETS = [
    b"[" * 2000, b"{" * 300, b"<a>" * 300, b"]" * 50, b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"&a [*a]", b"*a",
    b"&x ", b"!!float x", b"!!binary =", b"!!python/object:os.system x", b"!!timestamp 1", b"!!set ", b"<<: ", b"? ", b"|\n",
    b">-\n", b"---\n", b"...\n", b"%YAML 9.9\n", b"%TAG ! x\n", b"9" * 5000, b"1e999", b"NaN", b"-Infinity", b"0x", b"1_0",
    b"1:60", b"\\ud800", b"\\u0000", b"\x1b[2J", b"\t", b"\r", b"\r\n", b"\xc2\x85", b"\xe2\x80\xae", b"<!DOCTYPE a [<!ENTITY b 'c'>]>",
    b"<!--", b"-->", b"<![CDATA[", b"&amp;", b"&b;", b"<?xml", b"</dds>", b"-----BEGIN CERTIFICATE-----", b"-----END", b"'", b'"', b"\\",
    b"null", b"true", b"{}", b"[]", b"''", b": ", b"- ", b", ", b"#", b"@", b"`", b"%",
]  # fmt: skip


def bytes_of(seed: bytes, chance: random.Random, others: Sequence[bytes] = ()) -> bytes:
    """Return a document with one to four random changes.

    Args:
        seed: The document.
        chance: Draws the changes.
        others: Documents from which parts are inserted, in addition to the document itself.
    """
    body = bytearray(seed)
    for _ in range(chance.randint(1, 4)):
        _change_bytes(body, chance, others or (seed,))
    return bytes(body)


def _change_bytes(body: bytearray, chance: random.Random, others: Sequence[bytes]) -> None:
    """Truncate, repeat, remove or replace a part, flip bits, insert another part, or move lines."""
    start = chance.randrange(len(body) + 1)
    length = chance.choice((1, 4, 16, 64, 400, len(body)))
    end = min(start + length, len(body))
    match chance.randrange(10):
        case 0:
            del body[start:]
        case 1:
            body[start:start] = body[start:end]
        case 2:
            del body[start:end]
        case 3:
            for _ in range(chance.randint(1, 8)):
                if body:
                    body[chance.randrange(len(body))] ^= 1 << chance.randrange(8)
        case 4:
            body[start:start] = chance.randbytes(chance.randint(1, 20))
        case 5:
            body[start:end] = chance.choice((b"\0", b"\xff", chance.randbytes(1))) * (end - start)
        case 6:
            body[start:end] = chance.choice(SNIPPETS)
        case 7:
            body[start:start] = chance.choice(SNIPPETS)
        case 8:
            other = chance.choice(others)
            place = chance.randrange(len(other) + 1)
            body[start : chance.choice((start, end))] = other[place : place + length]
        case 9:
            _move_lines(body, chance)


def _move_lines(body: bytearray, chance: random.Random) -> None:
    """Insert one of the lines again, or shuffle all."""
    lines = bytes(body).split(b"\n")
    if chance.random() < 0.8:
        lines.insert(chance.randrange(len(lines)), chance.choice(lines))
    else:
        chance.shuffle(lines)
    body[:] = b"\n".join(lines)


def value_of(data: Any, chance: random.Random) -> Any:
    """Return a copy of data in which some values, keys or items are replaced, removed or added."""
    damaged = copy.deepcopy(data)
    for _ in range(chance.randint(1, 3)):
        place = chance.choice(list(_places(damaged)) or [None])
        if place is None:
            return chance.choice(HOSTILE)
        container, key = place
        match chance.randrange(6):
            case 0:
                del container[key]
            case 1 if isinstance(container, dict):
                container[str(chance.choice(HOSTILE))[:300]] = container.pop(key)
            case 2 if isinstance(container, dict):
                container[str(chance.choice(HOSTILE))[:300]] = copy.deepcopy(chance.choice(HOSTILE))
            case 3:
                container[key] = [container[key]]
            case _:
                container[key] = copy.deepcopy(chance.choice(HOSTILE))
    return damaged


def json_of(seed: bytes, chance: random.Random) -> bytes:
    """Return a JSON document with damaged values or damaged bytes."""
    if chance.random() < 0.3:
        return bytes_of(seed, chance)
    text = json.dumps(value_of(json.loads(seed), chance), ensure_ascii=chance.random() < 0.5)
    return text.encode("utf-8", "surrogatepass")


def lines_of(seed: bytes, chance: random.Random) -> bytes:
    """Return a JSON Lines document in which some lines are damaged."""
    lines = [line for line in seed.split(b"\n") if line]
    for _ in range(chance.randint(1, 3)):
        number = chance.randrange(len(lines))
        try:
            lines[number] = json_of(lines[number], chance)
        except (ValueError, RecursionError):  # an earlier change has damaged this line
            lines[number] = bytes_of(lines[number], chance)
    return b"\n".join(lines) + (b"\n" if chance.random() < 0.9 else b"")


def _places(data: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    entries = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in entries:
        found.append((data, key))
        found += _places(value)
    return found
