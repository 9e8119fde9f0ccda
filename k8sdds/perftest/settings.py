"""Read the configuration that PerfTest prints at the beginning of a log, and k8sdds-perftest in its JSON output."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

from k8sdds.model.trial import PUBLISHER, SUBSCRIBER, Role
from k8sdds.perftest.rows import LATENCY, THROUGHPUT

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
"""The commit in the banner of the program that replaces RTI PerfTest in tests."""

LEVELS = (
    "SignWithOrigAuthRTPSEncryptData", "SignWithOrigAuthRTPSEncryptSM", "SignEncryptData", "EncryptRTPS",
    "SignRTPS",
)  # fmt: skip
"""Governance levels that a file name may contain; names that contain other names come first."""

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
    """A log's configuration block. A property is None if the log does not contain it."""

    lines: dict[str, str] = field(default_factory=dict)
    """The first value of each key, as printed."""
    version: str | None = None
    stand_in: bool = False
    """Whether the banner is from the program that replaces RTI PerfTest in tests."""
    middleware: str | None = None
    """Name and version as printed, such as `RTI Connext DDS 6.0.1`."""
    mode: str | None = None
    """`latency` or `throughput`, which publishers print; or the test in the JSON output of any participant."""
    discovers: tuple[int, str] | None = None
    """Number and role of the participants that it waited for, such as (4, "subscribers")."""
    secured: bool = False
    """Whether there is a section on security."""

    @classmethod
    def read(cls, lines: Iterable[str]) -> Settings:
        """Return the settings among the complete lines of a log."""
        settings: dict[str, str] = {}
        banner: re.Match[str] | None = None
        mode: str | None = None
        discovers: tuple[int, str] | None = None
        secured = False
        for line in lines:
            if match := _SETTING.match(line):
                settings.setdefault(match[1].strip(), match[2].strip()[:300])
            elif line.startswith("Mode: "):
                mode = mode or (
                    LATENCY if "LATENCY" in line else THROUGHPUT if "THROUGHPUT" in line else None
                )
            elif match := _DISCOVER.match(line):
                discovers = discovers or (int(match[1]), match[2])
            elif line.startswith(_SECTIONS):
                secured = secured or line.startswith("Secur")
            elif not banner:
                banner = _BANNER.match(line)
        version = banner["version"] if banner else None
        stand_in = banner is not None and banner["commit"] == STAND_IN
        middleware = banner["middleware"] if banner else None
        return cls(settings, version, stand_in, middleware, mode, discovers, secured)

    @classmethod
    def of_output(cls, output: Mapping[str, Any]) -> Settings:
        """Return the settings in the `k8sdds` object of JSON output, in the words in which PerfTest prints them."""

        def part(name: str) -> Mapping[str, Any]:
            value = output.get(name)
            return value if isinstance(value, dict) else {}

        options, middleware = part("options"), part("middleware")
        publishes = output.get("role") == PUBLISHER
        rate = str(options.get("pubRate") or "").partition(":")[0]
        duration_s = options.get("executionTime")
        lines = {
            "Publisher ID" if publishes else "Subscriber ID": output.get("id"),
            "Data Size": options.get("dataLen"),
            "Reliability": "Best Effort" if options.get("bestEffort") else "Reliable",
            "Use Multicast": options.get("multicast"),
            "Kind": options.get("transport"),
            "Batching": part("qos").get("batch_bytes"),
            "Publication Rate": (f"{rate} Samples/s" if rate else "Unlimited") if publishes else None,
            "Execution time": f"{duration_s} seconds" if duration_s else None,
            "Receive using": options.get("receive"),
            "XML File": options.get("qosFile"),
            "Governance file": options.get("secureGovernanceFile"),
        }
        mode = f"-{options['rawMode']}" if options.get("rawMode") else ""
        peers = options.get("numSubscribers" if publishes else "numPublishers")
        return cls(
            {key: str(value)[:300] for key, value in lines.items() if value is not None},
            version=str(output.get("version")),
            middleware=f"{middleware.get('name')}{mode} {middleware.get('version') or ''}".strip(),
            mode=str(output.get("test")),
            discovers=(peers, "subscribers" if publishes else "publishers")
            if isinstance(peers, int)
            else None,
            secured=bool(options.get("secureGovernanceFile")),
        )

    @property
    def known(self) -> bool:
        """Whether the log contains any output of PerfTest."""
        return bool(self.version or self.mode or self.discovers or "Data Size" in self.lines)

    @property
    def role(self) -> Role | None:
        """The participant's role."""
        if "Publisher ID" in self.lines:
            return PUBLISHER
        if "Subscriber ID" in self.lines:
            return SUBSCRIBER
        if self.discovers:
            return PUBLISHER if self.discovers[1] == "subscribers" else SUBSCRIBER
        return PUBLISHER if self.mode else None

    @property
    def identity(self) -> int | None:
        """The publisher's or subscriber's number."""
        return _integer(self.lines.get("Publisher ID", self.lines.get("Subscriber ID")))

    @property
    def payloads(self) -> tuple[int, ...]:
        """The values of `Data Size`. A scan has several."""
        parts = [part.strip() for part in self.lines.get("Data Size", "").split(",")]
        # Ignore damaged values: a part of a number is a number that the log does not contain.
        return tuple(map(int, parts)) if all(map(_BYTES.fullmatch, parts)) else ()

    @property
    def reliability(self) -> str | None:
        """`reliable` or `best-effort`."""
        return {"Reliable": "reliable", "Best Effort": "best-effort"}.get(self.lines.get("Reliability", ""))

    @property
    def transport(self) -> str | None:
        """`unicast` or `multicast`. Transports without multicast print an explanation after `True`."""
        text = self.lines.get("Use Multicast")
        return None if text is None else "multicast" if text.startswith("True") else "unicast"

    @property
    def kind(self) -> str | None:
        """The transport's kind, such as `UDPv4 & SHMEM`, `TLS`, `DTLS`."""
        text = self.lines.get("Kind")
        return None if text is None else text.removesuffix("(taken from QoS XML file)").strip() or None

    @property
    def batch_bytes(self) -> int | None:
        """The size of a batch in bytes; 0 means no batching."""
        text = self.lines.get("Batching")
        if text is None:
            return None
        return (
            _integer(text.removesuffix(' (Use "-batchSize 0" to disable batching)').split(" Bytes")[0]) or 0
        )

    @property
    def rate(self) -> float | None:
        """The offered rate in samples per second; 0 means as fast as possible."""
        text = self.lines.get("Publication Rate")
        if text is None or not (
            match := re.match(r"([0-9]{1,12}(?:\.[0-9]+)?) [Ss]amples/s|Unlimited", text)
        ):
            return None
        return float(match[1] or 0)

    @property
    def duration_s(self) -> float | None:
        """`Execution time`."""
        match = re.match(r"([0-9]{1,9}(?:\.[0-9]+)?) seconds", self.lines.get("Execution time", ""))
        return float(match[1]) if match else None

    @property
    def receive_mode(self) -> str | None:
        """`listener`, `waitset` or `spin`."""
        text = self.lines.get("Receive using", "").lower()
        return next((mode for mode in ("listener", "waitset", "spin") if text.startswith(mode)), None)

    @property
    def qos(self) -> str | None:
        """The name of the QoS file without folder and extension, and unusual properties of the data type."""
        text = self.lines.get("XML File")
        # A path may come from Windows.
        name = PurePosixPath(PureWindowsPath(text).name).stem if text else None
        special = [text for key, text in _SPECIAL.items() if self.lines.get(key, "No").startswith("Yes")]
        return ", ".join(filter(None, [name, *special])) or None

    @property
    def security(self) -> str | None:
        """`none`, a governance level, a list of what is signed and encrypted, or the secured transport."""
        if self.secured:
            governance = self.lines.get("Governance file", "Not Specified")
            level = next((level for level in LEVELS if level.lower() in governance.lower()), None)
            parts = "+".join(part for key, part in _SECURED.items() if self.lines.get(key) == "True")
            name = (
                PurePosixPath(PureWindowsPath(governance).name).stem if governance != "Not Specified" else ""
            )
            return level or parts or name or "DDS Security"
        if (self.kind or "").split("v")[0].rstrip("4") in ("TLS", "DTLS"):
            return (self.kind or "").split("v")[0]
        return "none" if self.known else None

    @property
    def product(self) -> tuple[str, str | None] | None:
        """The name of the middleware in k8sdds and its version: ("connext", "6.0.1")."""
        if self.middleware is None or not (match := _PRODUCT.match(self.middleware)):
            return None
        name = match["name"].lower().removeprefix("rti ").strip()
        if name.startswith("raw-"):
            return name, match["version"]
        for part, own_name in (("micro", "connext-micro"), ("cert", "connext-cert"), ("tss", "connext-tss"),
                           ("raw", "raw"), ("cyclone", "cyclonedds"), ("fast", "fastdds"),
                           ("connext", "connext")):  # fmt: skip
            if part in name:
                return own_name, match["version"]
        return name or "unknown", match["version"]


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,10}", text.strip()) else None
