"""Test the claims of a study against the trials in run folders.

model     the format of a claims file: statement, quantity, cells, region, and what can test it
files     load claims files by name or path
evidence  select the trials for each part of a claim, by run folder and variant
study     plan the campaigns that claims need; the folder with their runs and verdicts
judge     decide verdicts with statistical tests: `k8sdds.claims.judge.judge(claims, runs)`
reasons   describe verdicts
"""

from __future__ import annotations

from k8sdds.claims.files import PAPER, find, load, read

__all__ = ["PAPER", "find", "load", "read"]
