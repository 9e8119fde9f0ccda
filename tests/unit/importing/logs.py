"""Logs of PerfTest in every output format, with invented numbers."""

from __future__ import annotations


def configuration(
    publisher: bool,
    *,
    number: int = 0,
    version: str = "4.3.0",
    commit: str = "0123abc",
    product: str = "RTI Connext DDS 7.3.0",
    size: int | str = 1024,
    latency: bool = True,
    reliability: str = "Reliable",
    kind: str = "UDPv4",
    multicast: str = "False",
    peers: int = 1,
    more: str = "",
) -> str:
    """Return the settings that a participant prints on stderr."""
    lines = [f"RTI Perftest {version} {commit} ({product})", ""]
    if publisher:
        lines += [f"Mode: {'LATENCY TEST (Ping-Pong test)' if latency else 'THROUGHPUT TEST'}", ""]
    lines += ["Perftest Configuration:", f"\tReliability: {reliability}", "\tKeyed: No"]
    lines.append(f"\t{'Publisher' if publisher else 'Subscriber'} ID: {number}")
    lines.append(f"\tData Size: {size}")
    if publisher:
        lines += ['\tBatching: No (Use "-batchSize" to setup batching)']
        lines += ["\tPublication Rate: Unlimited (Not set)", "\tExecution time: 30 seconds"]
    lines += ["\tReceive using: Listeners", "\tDomain: 1", "\tXML File: perftest_qos_profiles.xml", ""]
    lines += ["Transport Configuration:", f"\tKind: {kind}", f"\tUse Multicast: {multicast}", ""]
    if more:
        lines += [more]
    lines.append(f"Waiting to discover {peers} {'subscribers' if publisher else 'publishers'} ...")
    return "\n".join(lines) + "\n"


SECURE_3 = """Secure Configuration:
\tEncrypt discovery: False
\tEncrypt topic (user) data: True
\tEncrypt submessage: False
\tSign data: True
\tGovernance file: ./resource/secure/signed_PerftestGovernance_SignEncryptData.xml
\tPermissions file: ./resource/secure/signed_PerftestPermissionsPub.xml
"""
SECURE_4 = SECURE_3[: SECURE_3.index("\tEncrypt")] + SECURE_3[SECURE_3.index("\tGovernance") :]

END = "Finishing test due to timer...\nTest ended.\n"

LATENCY = dict(
    mean_us=54, std_us=3, min_us=50, max_us=60, p50_us=55, p90_us=57, p99_us=58, p9999_us=59, p999999_us=60
)
THROUGHPUT = dict(samples=181000, samples_per_s=90500, throughput_mbps=741.4, lost=3, lost_percent=0.01)

TEXT_LATENCY = (
    "Length:  1024  Latency: Ave     54 us  Std    3.0 us  Min     50 us  Max     60 us  50%     55 us"
    "  90%     57 us 99%     58 us  99.99%     59 us  99.9999%     60 us CPU: 4.55%\n"
)
TEXT_THROUGHPUT = "Length:  1024  Packets:   181000  Packets/s(ave):   90500  Mbps(ave):   741.4  Lost:     3 (0.01%) CPU: 8.78%\n"
LEGACY_LATENCY = (
    "********** New data length is 1024\n"
    "One-Way Latency:     53 us  Ave     54 us  Std    3.1 us  Min     50 us  Max     60 us CPU 4.50 (%)\n"
    "Length:  1024 Latency: Ave 54 us Std 3.0 us Min 50 us Max 60 us 50% 55 us 90% 57 us 99% 58 us"
    " 99.99% 59 us 99.9999% 60 us CPU 4.55 (%)\n"
)
LEGACY_THROUGHPUT = (
    "********** New data length is 1024\n"
    "Packets:    90580  Packets/s:     754  Packets/s(ave):     754  Mbps:   6.2  Mbps(ave):   6.2"
    "  Lost:     0 (0.00%) CPU 8.76 (%)\n"
    "Length:  1024  Packets:   181000  Packets/s(ave):   90500  Mbps(ave):   741.4  Lost:     3 (0.01%) CPU 8.78 (%)\n"
)


def csv_latency(
    unit: str = "μs", first: str = "Sample Size (Bytes)", cpu: bool = True, more: bool = False
) -> str:
    """Return a latency log of 3.1 to 4.x, with intervals."""
    scale = 1000 if unit == "ns" else 1
    tail = (f", Serialization ({unit}), Deserialization ({unit}), Total ({unit})" if more else "") + (
        ", CPU (%)" if cpu else ""
    )
    end = (",  1.115,  1.062,  2.177" if more else "") + (",    4.55" if cpu else "")
    values = (54, 3.0, 50, 60, 55, 57, 58, 59, 60)
    numbers = ",".join(f"{value * scale:9g}" for value in values)
    quantiles = ", ".join(f"{name} ({unit})" for name in
                          ("Ave", "Std", "Min", "Max", "50%", "90%", "99%", "99.99%", "99.9999%"))  # fmt: skip
    return (
        "\nIntervals One-Way Latency for 1024 Bytes:\n"
        f"Length (Bytes), Latency ({unit}), Ave ({unit}), Std ({unit}), Min ({unit}), Max ({unit})"
        f"{', CPU (%)' if cpu else ''}\n"
        f"          1024,  53,  54,  3.1,  50,  60{',    4.50' if cpu else ''}\n"
        "\nOne-way Latency Summary:\n"
        f"{first}, {quantiles}{tail}\n"
        f"               1024,{numbers}{end}\n"
    )


def csv_throughput(avg: str = "Avg", first: str = "Sample Size (Bytes)", cpu: bool = True) -> str:
    """Return a throughput log of 3.1 to 4.x, with intervals."""
    tail, a, b = (", CPU (%)", ",    8.76", ",    8.78") if cpu else ("", "", "")
    return (
        "\nInterval Throughput for 1024 Bytes:\n"
        f"Length (Bytes), Total Samples,  Samples/s, {avg} Samples/s,     Mbps,  {avg} Mbps, Lost Samples,"
        f" Lost Samples (%){tail}\n"
        f"          1024,         90580,        754,           754,      6.2,       6.2,            0,"
        f"             0.00{a}\n"
        "\nThroughput Summary:\n"
        f"{first}, Total Samples, {avg} Samples/s,    {avg} Mbps, Lost Samples, Lost Samples (%){tail}\n"
        f"               1024,        181000,         90500,       741.4,            3,             0.01{b}\n"
    )


_JSON_LATENCY = """"length":1024,
"intervals":[
    {"latency":53,"latency_ave":54,"latency_std":3.1,"latency_min":50,"latency_max":60}
],
"summary":{
    "latency_ave":54,"latency_std":3.0,"latency_min":50,"latency_max":60,
    "latency_50":55,"latency_90":57,"latency_99":58,"latency_99.99":59,"latency_99.9999":60,
    "CPU":4.55
    }
"""
_JSON_THROUGHPUT = """"length":1024,
"intervals":[],
"summary":{
    "packets":181000,"packets/sAve":90500,"mbpsAve":741.4,"lost":3,"lostPercent":0.01,
    "cpu":8.78
    }
"""
JSON_LATENCY, JSON_THROUGHPUT = (
    f'{{"perftest":\n[\n{{\n{body}}}\n]\n}}\n' for body in (_JSON_LATENCY, _JSON_THROUGHPUT)
)
BROKEN_JSON_LATENCY, BROKEN_JSON_THROUGHPUT = _JSON_LATENCY + "}\n", _JSON_THROUGHPUT + "}\n"
"""As the C++ version prints it from 3.1 to 4.3: without the beginning, with an additional brace."""
