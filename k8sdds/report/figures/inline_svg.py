"""Make the SVG files of matplotlib small enough for pages with many figures, and follow the colors of the page.

A file has a group around each element, six digits for each number, and the style of each element in full. On a page,
groups without attributes are removed, numbers have the digits that are visible, and `share_styles` writes each style
and id once for all figures.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from k8sdds.report.theme import themed

if TYPE_CHECKING:
    from k8sdds.report.figures.canvas import Figure

_SVG = "{http://www.w3.org/2000/svg}"
_HREF = "{http://www.w3.org/1999/xlink}href"
_NUMBERS = ("d", "x", "y", "width", "height", "transform", "points")
_FONTS = "'DejaVu Sans',Verdana,Arial,sans-serif"
_TICK = re.compile(r"[xy]tick_")
_PIXELS_PER_POINT = 96 / 72 * 1.18
"""Enlarged, because the text of the page is larger than on paper."""

Element = ElementTree.Element


def inline(svg: str, slug: str, alt: str) -> str:
    """Return the content of an SVG file by matplotlib as markup for a page, with a description."""
    root = ElementTree.fromstring(svg)
    width = float(root.attrib["width"].removesuffix("pt")) * _PIXELS_PER_POINT
    box = _rounded(root.attrib["viewBox"], 1)
    head = (
        f'<svg viewBox="{box}" width="{width:.0f}" style="min-width:{0.7 * width:.0f}px" role="img"'
        f' aria-labelledby="{slug}-alt">'
        f'<title id="{slug}-alt">{escape(alt)}</title>'
    )
    body = "\n".join([*_ticks(root), *_markup(_visible(root))])
    shapes = "".join(
        f"{_element(shape, 2)}\n"
        for defs in root.iter(f"{_SVG}defs")
        for shape in defs
        if f"#{shape.attrib.get('id')}" in body
    )
    defined = f"<defs>\n{shapes}</defs>\n" if shapes else ""
    return themed(f'{head}\n{defined}<g id="drawing-{slug}">{body}</g>\n</svg>\n').replace(
        "'DejaVu Sans'", _FONTS
    )


def share_styles(figures: Sequence[Figure]) -> tuple[list[Figure], str]:
    """Replace the styles of all figures of a page by classes, and define each marker and clip path once.

    Returns:
        The figures, and the rules for the style sheet of the page.
    """
    classes: dict[str, str] = {}
    shapes: dict[str, str] = {}
    ids: dict[str, str] = {}

    def class_of(match: re.Match[str]) -> str:
        return f' class="{classes.setdefault(match[1], f"f{len(classes)}")}"'

    def define(match: re.Match[str]) -> str:
        tag, own, rest = match.groups()
        is_new = tag + rest not in shapes
        ids[own] = shapes.setdefault(tag + rest, f"i{len(shapes)}")
        return f'<{tag} id="{ids[own]}"{rest}\n' if is_new else ""

    shared = []
    for figure in figures:
        svg = re.sub(r' style="([^"]*)"', class_of, figure.svg)
        svg = re.sub(r'<(path|clipPath) id="(\w+)"(.*)\n', define, svg).replace("<defs>\n</defs>\n", "")
        svg = re.sub(r'( href="#|="url\(#)(\w+)', lambda match: match[1] + ids[match[2]], svg)
        shared.append(replace(figure, svg=svg))
    return shared, "".join(f".{name}{{{style}}}\n" for style, name in classes.items())


def _ticks(root: Element) -> Iterator[str]:
    """Yield the grid lines and ticks of all axes, which are behind everything else, as one element for each style."""
    # matplotlib writes a path without a shape for a line outside its axes.
    markers = {
        element.attrib["id"]: element for element in root.iter(f"{_SVG}path") if "id" in element.attrib
    }
    lines: dict[str, list[str]] = {}
    for group in root.iter(f"{_SVG}g"):
        if not _TICK.match(group.attrib.get("id", "")):
            continue
        for element in group.iter():
            if element.tag == f"{_SVG}path" and "id" not in element.attrib and "d" in element.attrib:
                lines.setdefault(_style(element), []).append(_shape(element.attrib["d"], 1))
            elif element.tag == f"{_SVG}use":
                marker = markers[element.attrib[_HREF].removeprefix("#")]
                at = float(element.attrib["x"]), float(element.attrib["y"])
                lines.setdefault(_style(marker), []).append(_shape(marker.attrib["d"], 1, at))
    for style, shapes in lines.items():
        yield f'<path d="{"".join(shapes)}" style="{style}"/>'


def _visible(parent: Element) -> Iterator[Element]:
    """Yield the elements that can be seen or referred to, without groups that only have an id."""
    for element in parent:
        tag, name = element.tag.removeprefix(_SVG), element.attrib.get("id", "")
        if tag == "g" and _TICK.match(name):
            yield from element.iter(f"{_SVG}text")
        elif tag == "g" and set(element.attrib) <= {"id"}:
            yield from _visible(element)
        elif tag == "path" and (_style(element) == "fill:none" or "d" not in element.attrib):
            continue
        elif tag not in ("metadata", "defs"):
            yield element


def _markup(elements: Iterable[Element]) -> Iterator[str]:
    # Neighbors that differ in their content only, such as the intervals of a series, become one element.
    for attributes, alike in itertools.groupby(elements, _mergeable):
        group = list(alike)
        if attributes is None:
            yield from (_element(element, 1) for element in group)
        elif group[0].tag == f"{_SVG}g":
            content = "".join(part for element in group for part in _markup(_visible(element)))
            yield f"<g{attributes}>{content}</g>"
        else:
            shape = "".join(_shape(element.attrib["d"], 1) for element in group)
            yield f'<path d="{shape}"{attributes}/>'


def _mergeable(element: Element) -> str | None:
    """Return the attributes of a line except its shape, or of a group that is only clipped; None: other elements."""
    style, group = _style(element), element.tag == f"{_SVG}g"
    line = element.tag == f"{_SVG}path" and "fill:none" in style and "opacity" not in style
    if not (line or (group and "transform" not in element.attrib and "opacity" not in style)):
        return None
    return _attributes({name: value for name, value in element.attrib.items() if name not in ("d", "id")}, 1)


def _element(element: Element, digits: int) -> str:
    tag = element.tag.removeprefix(_SVG)
    attributes = {key: value for key, value in element.attrib.items() if not (tag == "g" and key == "id")}
    start = f"<{tag}{_attributes(attributes, digits)}"
    content = _text(element) if tag == "text" else "".join(_markup(_visible(element)))
    return f"{start}>{content}</{tag}>" if content else f"{start}/>"


def _text(element: Element) -> str:
    # With escaped quotes, no text looks like an attribute to `share_styles`.
    parts = [escape(element.text or "")]
    for child in element:
        tag = child.tag.removeprefix(_SVG)
        parts.append(f"<{tag}{_attributes(child.attrib, 1)}>{_text(child)}</{tag}>{escape(child.tail or '')}")
    return "".join(parts).strip()


def _attributes(attributes: dict[str, str], digits: int) -> str:
    parts = []
    for key, value in attributes.items():
        if key == "style":
            value = _minified(value)
        elif key == "d":
            value = _shape(value, digits)
        elif key in _NUMBERS:
            value = _rounded(value, digits)
        if not value.startswith("rotate(0 "):
            # The names of fonts are in single quotes, which a style sheet needs as they are.
            text = escape(value, quote=False).replace('"', "&quot;")
            parts.append(f' {"href" if key == _HREF else key}="{text}"')
    return "".join(parts)


def _style(element: Element) -> str:
    return _minified(element.attrib.get("style", ""))


def _minified(style: str) -> str:
    return re.sub(r"\s*([:;,])\s*", r"\1", style).strip(";")


def _shape(path: str, digits: int, at: tuple[float, float] = (0, 0)) -> str:
    """Return a path, moved to a position, with the shortest commands. Curves must not be moved."""
    words = path.split()
    if not set(filter(str.isalpha, words)) <= {"M", "L", "z"}:
        return re.sub(r" ?([A-Za-z]) ?", r"\1", _rounded(" ".join(words), digits))
    parts = []
    before = (0.0, 0.0)
    position = 0
    while position < len(words):
        command = words[position]
        if command == "z":
            parts.append("z")
            position += 1
            continue
        x, y = (round(float(words[position + 1 + axis]) + at[axis], digits) for axis in (0, 1))
        position += 3
        dx, dy = round(x - before[0], digits), round(y - before[1], digits)
        if command == "M":
            parts.append(f"M{_number(x)}{_next(y)}")
        elif dx and dy:
            parts.append(f"l{_number(dx)}{_next(dy)}")
        elif dx or dy:
            parts.append(f"h{_number(dx)}" if dx else f"v{_number(dy)}")
        before = x, y
    return "".join(_joined(parts))


def _joined(parts: Iterable[str]) -> Iterator[str]:
    """Join the straight parts of a path that follow each other in one direction, as in the steps of a distribution."""
    for direction, alike in itertools.groupby(parts, lambda part: part[:2] if part[1:2] == "-" else part[:1]):
        if direction.strip("-") in ("h", "v"):
            yield f"{direction[0]}{_number(round(sum(float(part[1:]) for part in alike), 2))}"
        else:
            yield from alike


def _number(value: float) -> str:
    return re.sub(r"^(-?)0\.", r"\1.", f"{value + 0.0:g}")


def _next(value: float) -> str:
    """Return a number that follows another one: a sign separates them as well as a space."""
    text = _number(value)
    return text if text.startswith("-") else f" {text}"


def _rounded(text: str, digits: int) -> str:
    return re.sub(
        r"-?\d+(?:\.\d+)?(?:e-?\d+)?", lambda number: f"{round(float(number[0]), digits) + 0.0:g}", text
    )
