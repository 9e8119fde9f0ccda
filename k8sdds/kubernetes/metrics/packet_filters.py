"""How many chains and rules of packet filters a node has: each may be looked at for each packet."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Rules:
    """Numbers of chains and rules."""

    nft_chains: int = 0
    """nftables, with what iptables-nft made there."""
    nft_rules: int = 0
    legacy_chains: int = 0
    """The older kernel interface of iptables, IPv4 and IPv6."""
    legacy_rules: int = 0


def count(nft: Any, iptables: str) -> Rules:
    """What `nft --json list ruleset` (parsed) and `iptables-legacy-save` said. ValueError for else."""
    if not isinstance(nft, dict) or not isinstance(nft.get("nftables"), list):
        raise ValueError(f"no nftables rule set: {json.dumps(nft)[:80]}")
    kinds = [next(iter(entry), "") for entry in nft["nftables"] if isinstance(entry, dict)]
    lines = iptables.splitlines()
    return Rules(
        nft_chains=kinds.count("chain"),
        nft_rules=kinds.count("rule"),
        legacy_chains=sum(line.startswith(":") for line in lines),
        legacy_rules=sum(line.startswith("-A ") for line in lines),
    )
