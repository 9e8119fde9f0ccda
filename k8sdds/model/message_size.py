"""Define the sizes of messages and fragments that experiments may give: words, or bytes."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field

SHORTEST_MESSAGE_BYTES, LONGEST_MESSAGE_BYTES = 512, 65_500
USUAL_MESSAGE_BYTES = 14_720
"""Largest message with `auto`."""
MessageWord = Literal["auto", "default", "mtu", "max"]
FragmentWord = Literal["default", "mtu", "max"]


def _check_size(words: tuple[str, ...]) -> BeforeValidator:

    def check(value: Any) -> Any:
        number = isinstance(value, int) and not isinstance(value, bool)
        if value in words or (number and SHORTEST_MESSAGE_BYTES <= value <= LONGEST_MESSAGE_BYTES):
            return value
        known = ", ".join(words)
        raise ValueError(
            f"expected {known} or a number from {SHORTEST_MESSAGE_BYTES:,} to {LONGEST_MESSAGE_BYTES:,}"
        )

    return BeforeValidator(check)


_Bytes = Annotated[int, Field(ge=SHORTEST_MESSAGE_BYTES, le=LONGEST_MESSAGE_BYTES)]
MessageBytes = Annotated[MessageWord | _Bytes, _check_size(get_args(MessageWord))]
FragmentBytes = Annotated[FragmentWord | _Bytes, _check_size(get_args(FragmentWord))]


def describe(parts: str, size: int | str, usual: str) -> str:
    """Describe the size of messages or fragments: `messages that fit the MTU`."""
    if size == usual:
        return f"usual {parts}"
    words = {"mtu": "that fit the MTU", "max": "of up to 65500 B", "default": "of the default size"}
    return f"{parts} {words.get(str(size)) or f'of up to {size} B'}"
