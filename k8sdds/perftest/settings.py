"""What a log of PerfTest says of its own configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import PurePosixPath, PureWindowsPath

_BANNER = re.compile(
    r"RTI Perftest (?P<version>\S{1,40})(?: (?P<commit>\S{1,40}))? \((?P<middleware>[^)]{1,80})\)"
)
_PRODUCT = re.compile(r"^(?P<name>.*?)\s*(?P<version>[0-9]+(?:\.[0-9]+)+\S*)?$")
_SETTING = re.compile(r"^[\t ]+([A-Za-z][A-Za-z0-9 ()/_-]{1,50}):\s?(.*)$")
_DISCOVER = re.compile(r"^Waiting to discover ([0-9]{1,4}) (publishers|subscribers)")
_BYTES = re.compile(r"[0-9]{1,10}")
_SECTIONS = ("Perftest Configuration:", "Transport Configuration:", "Transport Information:",
             "Secure Configuration:", "Security Plugins Information:")  # fmt: skip

STAND_IN = "stand-in"
"""In the banner's place of a commit: of a program that stands for RTI's in tests."""

LEVELS = (
    "SignWithOrigAuthRTPSEncryptData", "SignWithOrigAuthRTPSEncryptSM", "SignEncryptData", "EncryptRTPS",
    "SignRTPS",
)  # fmt: skip
"""Governance levels that a file's name may tell, those first that contain others."""

_SECURED = {
    "Sign data": "Sign",
    "Encrypt topic (user) data": "EncryptData",
    "Encrypt submessage": "EncryptSM",
    "Encrypt discovery": "EncryptDiscovery",
}
_SPECIAL = {
    "Keyed": "keyed",
    "Dynamic Data": "dynamic data",
    "FlatData": "flat data",
    "Zero Copy": "zero copy",
    "Asynchronous Publishing": "asynchronous",
}


@dataclass(frozen=True)
class Settings:
    """A log's configuration block. Each property is None where the log does not say."""

    lines: dict[str, str] = field(default_factory=dict)
    """Key to value, as printed; the first of each key."""
    version: str | None = None
    stand_in: bool = False
    """It says of itself that it is none of RTI's, but prints the like."""
    middleware: str | None = None
    """As printed: `RTI Connext DDS 6.0.1`."""
    mode: str | None = None
    """`latency` or `throughput`: a publisher says it."""
    discovers: tuple[int, str] | None = None
    """How many of whom it waited for: (4, "subscribers")."""
    secured: bool = False
    """Whether it has a section on security."""

    @classmethod
    def read(cls, lines: Iterable[str]) -> Settings:
        """The settings among whole lines of a log."""
        found: dict[str, str] = {}
        banner = mode = discovers = None
        secured = False
        for line in lines:
            if match := _SETTING.match(line):
                found.setdefault(match[1].strip(), match[2].strip()[:300])
            elif line.startswith("Mode: "):
                mode = mode or (
                    "latency" if "LATENCY" in line else "throughput" if "THROUGHPUT" in line else None
                )
            elif match := _DISCOVER.match(line):
                discovers = discovers or (int(match[1]), match[2])
            elif line.startswith(_SECTIONS):
                secured = secured or line.startswith("Secur")
            elif not banner:
                banner = _BANNER.match(line)
        version = banner["version"] if banner else None
        stand_in = bool(banner) and banner["commit"] == STAND_IN
        middleware = banner["middleware"] if banner else None
        return cls(found, version, stand_in, middleware, mode, discovers, secured)

    @property
    def known(self) -> bool:
        """Whether anything of PerfTest's own was found."""
        return bool(self.version or self.mode or self.discovers or "Data Size" in self.lines)

    @property
    def role(self) -> str | None:
        """`publisher` or `subscriber`."""
        if (
            "Publisher ID" in self.lines
            or (self.discovers and self.discovers[1] == "subscribers")
            or self.mode
        ):
            return "publisher"
        if "Subscriber ID" in self.lines or (self.discovers and self.discovers[1] == "publishers"):
            return "subscriber"
        return None

    @property
    def identity(self) -> int | None:
        """The publisher's or subscriber's number."""
        return _integer(self.lines.get("Publisher ID", self.lines.get("Subscriber ID")))

    @property
    def payloads(self) -> tuple[int, ...]:
        """`Data Size`: one, or several of a scan."""
        parts = [part.strip() for part in self.lines.get("Data Size", "").split(",")]
        # A damaged one is none: half a number would be a number that the log does not hold.
        return tuple(map(int, parts)) if all(map(_BYTES.fullmatch, parts)) else ()

    @property
    def reliability(self) -> str | None:
        """`reliable` or `best-effort`."""
        return {"Reliable": "reliable", "Best Effort": "best-effort"}.get(self.lines.get("Reliability", ""))

    @property
    def transport(self) -> str | None:
        """`unicast` or `multicast`. `True` alone: a kind that cannot carry it says so and stays unicast."""
        text = self.lines.get("Use Multicast")
        return None if text is None else "multicast" if text.startswith("True") else "unicast"

    @property
    def kind(self) -> str | None:
        """The transport's kind, such as `UDPv4 & SHMEM`, `TLS`, `DTLS`."""
        text = self.lines.get("Kind")
        return None if text is None else text.removesuffix("(taken from QoS XML file)").strip() or None

    @property
    def batch_bytes(self) -> int | None:
        """0: no batching."""
        text = self.lines.get("Batching")
        if text is None:
            return None
        return (
            _integer(text.removesuffix(' (Use "-batchSize 0" to disable batching)').split(" Bytes")[0]) or 0
        )

    @property
    def rate(self) -> float | None:
        """Samples per second asked for; 0: as fast as possible."""
        text = self.lines.get("Publication Rate")
        if text is None or not (
            found := re.match(r"([0-9]{1,12}(?:\.[0-9]+)?) [Ss]amples/s|Unlimited", text)
        ):
            return None
        return float(found[1] or 0)

    @property
    def duration_s(self) -> float | None:
        """`Execution time`."""
        found = re.match(r"([0-9]{1,9}(?:\.[0-9]+)?) seconds", self.lines.get("Execution time", ""))
        return float(found[1]) if found else None

    @property
    def receive_mode(self) -> str | None:
        """`listener` or `waitset`."""
        text = self.lines.get("Receive using", "").lower()
        return (
            "listener" if text.startswith("listener") else "waitset" if text.startswith("waitset") else None
        )

    @property
    def qos(self) -> str | None:
        """The QoS file's name without folder and ending, and what else of the data's form is not usual."""
        text = self.lines.get("XML File")
        # A path may come from Windows.
        name = PurePosixPath(PureWindowsPath(text).name).stem if text else None
        special = [words for key, words in _SPECIAL.items() if self.lines.get(key, "No").startswith("Yes")]
        return ", ".join(filter(None, [name, *special])) or None

    @property
    def security(self) -> str | None:
        """`none`, a governance level, what was signed and encrypted, or the secured transport."""
        if self.secured:
            governance = self.lines.get("Governance file", "Not Specified")
            level = next((level for level in LEVELS if level.lower() in governance.lower()), None)
            told = "+".join(word for key, word in _SECURED.items() if self.lines.get(key) == "True")
            name = (
                PurePosixPath(PureWindowsPath(governance).name).stem if governance != "Not Specified" else ""
            )
            return level or told or name or "DDS Security"
        if (self.kind or "").split("v")[0].rstrip("4") in ("TLS", "DTLS"):
            return (self.kind or "").split("v")[0]
        return "none" if self.known else None

    @property
    def product(self) -> tuple[str, str | None] | None:
        """The middleware's name in our words and its version: ("connext", "6.0.1")."""
        if self.middleware is None or not (found := _PRODUCT.match(self.middleware)):
            return None
        name = found["name"].lower().removeprefix("rti ").strip()
        for part, ours in (("micro", "connext-micro"), ("cert", "connext-cert"), ("tss", "connext-tss"),
                           ("raw", "raw"), ("cyclone", "cyclonedds"), ("fast", "fastdds"),
                           ("connext", "connext")):  # fmt: skip
            if part in name:
                return ours, found["version"]
        return name or "unknown", found["version"]


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,10}", text.strip()) else None
