"""Define the protection of a trial by DDS Security and how an experiment selects it."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from k8sdds.system.strict import MAX_NAME, Label, Strict, short_for

Kind = Literal["NONE", "SIGN", "ENCRYPT"]
OriginKind = Literal[
    "NONE", "SIGN", "ENCRYPT", "SIGN_WITH_ORIGIN_AUTHENTICATION", "ENCRYPT_WITH_ORIGIN_AUTHENTICATION"
]
AesBits = Literal[128, 256]

NONE = "none"
"""The level without DDS Security, whose plugins are not loaded."""


class Protection(Strict):
    """The protection of a DDS domain: the parts of a governance document, and the length of AES keys."""

    page: ClassVar[str] = "security"

    rtps: OriginKind = Field(default="NONE", description="whole RTPS messages")
    submessage: OriginKind = Field(
        default="NONE", description="submessages, which contain a sample with its header"
    )
    payload: Kind = Field(default="NONE", description="the content of samples only")
    discovery: OriginKind = Field(default="NONE", description="announcements of writers and readers")
    liveliness: OriginKind = Field(default="NONE", description="liveliness messages of participants")
    allow_unauthenticated: bool = Field(
        default=False, description="whether participants without a certificate may join"
    )
    access_control: bool = Field(
        default=True, description="whether joining, reading and writing require a permission"
    )
    aes_bits: AesBits = Field(default=256, description="length of AES-GCM and AES-GMAC keys")

    @property
    def kinds(self) -> dict[str, str]:
        """The kind of protection of each part."""
        return {name: getattr(self, name) for name in PARTS}

    @property
    def signs(self) -> bool:
        """Whether a receiver detects a sample that was modified on the wire."""
        return any(self.kinds[name] != "NONE" for name in ("rtps", "submessage", "payload"))

    @property
    def encrypts(self) -> bool:
        """Whether a sample's content is unreadable on the wire."""
        return any(self.kinds[name].startswith("ENCRYPT") for name in ("rtps", "submessage", "payload"))

    def describe(self) -> str:
        """Describe the parts, such as `rtps SIGN, payload ENCRYPT, AES-128`."""
        parts = [f"{name} {kind}" for name, kind in self.kinds.items() if kind != "NONE"]
        parts += ["unauthenticated participants allowed"] if self.allow_unauthenticated else []
        parts += [] if self.access_control else ["no access control"]
        return ", ".join([*(parts or ["authentication only"]), f"AES-{self.aes_bits}"])


PARTS = ("rtps", "submessage", "payload", "discovery", "liveliness")
"""Parts of a protection that have a kind."""


def _meaning(part: str) -> str | None:
    return Protection.model_fields[part].description


class SecurityChoice(Strict):
    """A protection of a sweep: the name of a level, or a mapping of parts that may change a level."""

    level: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$",
        max_length=MAX_NAME,
        description="level whose parts are changed",
    )
    label: Label | None = Field(default=None, description="name in tables and figures")
    rtps: OriginKind | None = Field(default=None, description=_meaning("rtps"))
    submessage: OriginKind | None = Field(default=None, description=_meaning("submessage"))
    payload: Kind | None = Field(default=None, description=_meaning("payload"))
    discovery: OriginKind | None = Field(default=None, description=_meaning("discovery"))
    liveliness: OriginKind | None = Field(default=None, description=_meaning("liveliness"))
    allow_unauthenticated: bool | None = Field(default=None, description=_meaning("allow_unauthenticated"))
    access_control: bool | None = Field(default=None, description=_meaning("access_control"))
    aes_bits: AesBits | None = Field(default=None, description=_meaning("aes_bits"))

    _from_text = short_for("level")

    @model_validator(mode="after")
    def _is_consistent(self) -> SecurityChoice:
        if self.level == NONE and self.options:
            raise ValueError(f"level none has no parts; leave out `level` to give {', '.join(self.options)}")
        if self.level is None and not self.options:
            raise ValueError("give a level by name, or parts such as {rtps: SIGN, payload: ENCRYPT}")
        return self

    @property
    def options(self) -> dict[str, Any]:
        """The parts that were given."""
        return self.model_dump(exclude={"level", "label"}, exclude_none=True)

    @property
    def spec(self) -> dict[str, Any]:
        """What a cell records in addition to the name; empty for an unchanged level."""
        return {} if self.name == self.level else self.model_dump(exclude={"label"}, exclude_none=True)

    @property
    def name(self) -> str:
        """The name in tables and figures: the label, or the level with the changed parts."""
        if self.label:
            return self.label
        parts = [f"{name}_{kind}" for name, kind in self.options.items() if name in PARTS]
        parts += [name if self.options[name] else f"no_{name}" for name in _SWITCHES if name in self.options]
        parts += [f"AES-{self.aes_bits}"] if self.aes_bits else []
        return "+".join([*([self.level] if self.level else []), *parts])

    def __str__(self) -> str:
        return self.name


_SWITCHES = ("allow_unauthenticated", "access_control")
