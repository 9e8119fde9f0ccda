"""Prepare this machine: Debian packages, kernel modules and the native programs."""

from k8sdds.setup.packages import PURPOSES, Purpose
from k8sdds.setup.prepare import Plan, apply, plan

__all__ = ["PURPOSES", "Plan", "Purpose", "apply", "plan"]
