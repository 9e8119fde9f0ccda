"""Templates of documents: HTML for a browser, Markdown for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jinja2


def templates(package: str, html: bool = True) -> jinja2.Environment:
    """The templates of a package; a name that they do not know is an error. Only HTML is escaped."""
    # Imported here because only few commands render anything.
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader(package),
        undefined=jinja2.StrictUndefined,
        autoescape=html,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=not html,
    )
