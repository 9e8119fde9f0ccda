"""The options of each release of RTI PerfTest: the roles that have them and whether they take a value.

PerfTest also accepts abbreviated names and takes the first match. k8sdds therefore writes full names only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Version = tuple[int, int]
OLDEST: Version = (3, 1)
"""The first release that prints results as CSV."""
NEWEST: Version = (4, 3)
VERSIONS: tuple[Version, ...] = ((3, 1), (3, 2), (3, 3), (4, 0), (4, 1), (4, 2), (4, 3))


@dataclass(frozen=True)
class Option:
    """An option of PerfTest."""

    name: str
    value: str = ""
    """Name of its value; empty if it takes no value."""
    role: Literal["both", "publisher", "subscriber"] = "both"
    since: Version = OLDEST
    until: Version = NEWEST
    """The last release with the option."""
    instead: str = ""
    """What to use in releases without the option."""
    repeats: bool = False


def _group(role: Literal["both", "publisher", "subscriber"], names: str, **more: object) -> list[Option]:
    """Return the options of a role from a text of `-name` and `-name=VALUE`, separated by spaces."""
    return [
        Option(name, value, role, **more)  # type: ignore[arg-type]
        for name, _, value in (option.partition("=") for option in names.split())
    ]


_ALL = [
    *_group(
        "both",
        "-sub -pub -bestEffort -dataLen=BYTES -verbosity=LEVEL -dynamicData -durability=KIND "
        "-domain=ID -instances=N -keyed -noDirectCommunication -noPositiveAcks "
        "-keepDurationUsec=US -noPrintIntervals -qosFile=FILE -qosLibrary=NAME -noXmlQos "
        "-useReadThread -waitsetDelayUsec=US -waitsetEventCount=N -asynchronous "
        "-flowController=NAME -cpu -unbounded=BYTES -threadPriorities=X:Y:Z -flatData -zeroCopy "
        "-checkConsistency -sendQueueSize=N -receiveQueueSize=N -showResourceLimits -cacheStats "
        "-outputFormat=FORMAT -noOutputHeaders -nic=NAME -allowInterfaces=NAME -transport=KIND "
        "-multicast -multicastAddr=ADDRESS -transportVerbosity=LEVEL "
        "-transportServerBindPort=PORT -transportWan -transportPublicAddress=ADDRESS "
        "-transportHostPort=PORT -transportWanServerAddress=ADDRESS -transportWanServerPort=PORT "
        "-transportWanId=ID -transportSecureWan -transportCertAuthority=FILE "
        "-transportCertFile=FILE -transportPrivateKey=FILE -secureGovernanceFile=FILE "
        "-securePermissionsFile=FILE -secureCertAuthority=FILE -secureCertFile=FILE "
        "-securePrivateKey=FILE -secureLibrary=NAME -secureEncryptionAlgorithm=NAME "
        "-secureEnableAAD -preallocateFragmentedSamples -rawTransport -noBlockingSockets -help",
    ),
    *_group("both", "-peer=ADDRESS", repeats=True),
    *_group("both", "-networkCapture -doNotDropNetworkCapture -compressionId=NAME -compressionLevel=N"
            " -compressionThreshold=N", since=(3, 2)),
    *_group("both", "-outputFile=FILE", since=(4, 0), instead="the output is on stdout"),
    *_group("both", "-crc -crcKind=KIND -enable-message-length -enableMonitoring2 -collectorPeer=ADDRESS"
            " -enableInstanceStateRecovery -lightWeightSecurity -securePSK=SEED"
            " -securePSKAlgorithm=NAME -secureRtpsHmacOnly", since=(4, 1)),
    *_group("both", "-messageSizeMax=BYTES", since=(4, 2),
            instead="leave message_bytes out, and set message_size_max in a QoS file"),
    *_group("both", "-threadCPUAffinity=A:B:C:D", since=(4, 3), instead="k8sdds pins participants itself"),
    *_group("both", "-secureSign -secureEncryptBoth -secureEncryptData -secureEncryptSM"
            " -secureEncryptDiscovery", until=(3, 3), instead="give a -secureGovernanceFile"),
    *_group(
        "publisher",
        "-batchSize=BYTES -enableAutoThrottle -enableTurboMode -latencyCount=N -latencyTest "
        "-executionTime=S -numIter=N -initialBurstSize=N -numSubscribers=N -pidMultiPubTest=ID "
        "-pubRate=N:METHOD -pubRatebps=N:METHOD -sleep=MS -spin=N -lowResolutionClock "
        "-writeInstance=N -showSerializationTime -loadDataFromFile=FILE "
        "-maximumAllocableBufferSize=BYTES",
    ),
    *_group("publisher", "-scan=LIST", until=(4, 1), instead="one run for each -dataLen"),
    *_group("publisher", "-latencyFile=FILE", since=(4, 1), instead="percentiles only"),
    *_group("subscriber", "-numPublishers=N -sidMultiSubTest=ID -cft=A:B"),
]  # fmt: skip
OPTIONS = {option.name: option for option in _ALL}


def version_text(version: Version) -> str:
    """Format a version, such as `4.1`."""
    return f"{version[0]}.{version[1]}"


def has(name: str, version: Version) -> bool:
    """Return whether a release has an option."""
    option = OPTIONS[name]
    return option.since <= version <= option.until


def refusal(args: Sequence[str], version: Version, role: str | None = None) -> str | None:
    """Return why a release of PerfTest rejects a command line, or None. Without a role, options of one are rejected."""
    if version not in VERSIONS:
        known = ", ".join(map(version_text, VERSIONS))
        return f"k8sdds does not know RTI PerfTest {version_text(version)} (it knows {known})"
    given: set[str] = set()
    position = 0
    while position < len(args):
        name = args[position]
        option = OPTIONS.get(name)
        if option is None:
            return f"{name}: RTI PerfTest {version_text(version)} has no such option"
        if not has(name, version):
            early = version < option.since
            when = (
                f"came with {version_text(option.since)}"
                if early
                else f"ended with {version_text(option.until)}"
            )
            instead = f": {option.instead}" if option.instead else ""
            return f"{name}: RTI PerfTest {version_text(version)} does not have it, it {when}{instead}"
        if option.role not in ("both", role):
            return f"{name}: only for the {option.role}"
        if name in given and not option.repeats:
            return f"{name}: given twice"
        given.add(name)
        position += 1
        if option.value:
            value = args[position] if position < len(args) else ""
            if not value or value.startswith("-"):
                return f"{name}: it needs a value ({option.value})"
            position += 1
    return None
