"""Count the chains and rules of a node's packet filters; every packet may have to pass all of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RuleCounts:
    """Numbers of chains and rules."""

    nft_chains: int = 0
    """In nftables, including those that iptables-nft created."""
    nft_rules: int = 0
    legacy_chains: int = 0
    """In the legacy kernel interface of iptables, IPv4 and IPv6."""
    legacy_rules: int = 0


def count(nft: Any, iptables: str) -> RuleCounts:
    """Count chains and rules.

    Args:
        nft: Parsed output of `nft --json list ruleset`.
        iptables: Output of `iptables-legacy-save`.

    Raises:
        ValueError: `nft` is not such an output.
    """
    if not isinstance(nft, dict) or not isinstance(nft.get("nftables"), list):
        raise ValueError(f"not an nftables rule set: {json.dumps(nft)[:80]}")
    kinds = [next(iter(entry), "") for entry in nft["nftables"] if isinstance(entry, dict)]
    lines = iptables.splitlines()
    return RuleCounts(
        nft_chains=kinds.count("chain"),
        nft_rules=kinds.count("rule"),
        legacy_chains=sum(line.startswith(":") for line in lines),
        legacy_rules=sum(line.startswith("-A ") for line in lines),
    )
