"""Create and read bundles: all the software of a cluster in one folder, for labs without internet access.

`create` makes a bundle from official builds, Go modules and Debian packages; `k8sdds deploy` installs from a `Bundle`.
"""

from k8sdds.bundle.bundle import Bundle, Item
from k8sdds.bundle.create import cached_bundle, create
from k8sdds.bundle.parts import cached_images

__all__ = ["Bundle", "Item", "cached_bundle", "cached_images", "create"]
