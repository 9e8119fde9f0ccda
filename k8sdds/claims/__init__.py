"""Claims of a study as data, and what run folders say of them. Reads `k8sdds.store` and nothing else.

model     a file of claims: statement, quantity, cells, region, what can test it
library   claims by name or file
evidence  the trials that speak to a part, by run folder and variant
judge     verdicts from named tests: `k8sdds.claims.judge.judge(claims, runs)`
"""

from __future__ import annotations

from k8sdds.claims.files import PAPER, find, load, read

__all__ = ["PAPER", "find", "load", "read"]
