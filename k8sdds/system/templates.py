"""Load Jinja templates of HTML and Markdown documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jinja2


def templates(package: str, html: bool = True) -> jinja2.Environment:
    """Return the template environment of a package. Undefined names are errors; only HTML is escaped."""
    # Imported here because only a few commands render templates.
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader(package),
        undefined=jinja2.StrictUndefined,
        autoescape=html,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=not html,
    )
