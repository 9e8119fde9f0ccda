"""Bundles: all the software of a cluster in one folder with checksums, for labs without internet.

Built from Go modules and Debian's packages by `create`; `Bundle` is what `k8sdds deploy` installs from.
"""

from k8sdds.bundle.bundle import Bundle, Item
from k8sdds.bundle.create import create, default

__all__ = ["Bundle", "Item", "create", "default"]
