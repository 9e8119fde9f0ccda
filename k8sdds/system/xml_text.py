"""Parse XML text within limits."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from k8sdds.system.reading import MAX_DEPTH, UnreadableError, printable

MAX_BYTES = 1024 * 1024
"""Largest document."""


class _Tree(ElementTree.TreeBuilder):
    """Builds elements and refuses deep nesting."""

    depth = 0

    def start(self, tag: Any, attrs: Any) -> ElementTree.Element:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ValueError(f"elements are nested more than {MAX_DEPTH} levels deep")
        return super().start(tag, attrs)

    def end(self, tag: Any) -> ElementTree.Element:
        self.depth -= 1
        return super().end(tag)

    def doctype(self, *_: Any) -> None:
        # Entities, which can expand without bound, are declared in a document type.
        raise ValueError("a document type is not allowed")


def parse(document: str | bytes, source: str, remedy: str = "") -> ElementTree.Element:
    """Return the root element of an XML document without a document type. Raises UnreadableError."""
    try:
        if len(document) > MAX_BYTES:
            raise ValueError(f"it is larger than {MAX_BYTES:,} bytes")
        parser = ElementTree.XMLParser(target=_Tree())
        parser.feed(document)
        root: ElementTree.Element = parser.close()
        return root
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise UnreadableError(f"{source}: not valid XML: {printable(str(error))}", remedy) from error
