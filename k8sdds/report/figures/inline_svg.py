"""Make the SVG files of matplotlib small enough for pages with many figures, and follow the colors of the page.

A file has a group around each element, six digits for each number, and the style of each element in full. On a page,
groups without attributes are removed, numbers have the digits that are visible, lines of one style are one element, and
`share_styles` writes each style and id once for all figures.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, fromstring

from k8sdds.report.theme import themed

if TYPE_CHECKING:
    from k8sdds.report.figures.canvas import Figure

_SVG = "{http://www.w3.org/2000/svg}"
_HREF = "{http://www.w3.org/1999/xlink}href"
_FONTS = "'DejaVu Sans',Verdana,Arial,sans-serif"
_BACKGROUND = "patch_1"
_TICK = re.compile(r"[xy]tick_")
_PIXELS_PER_POINT = 96 / 72 * 1.18
"""Enlarged, because the text of the page is larger than on paper."""


def inline(svg: str, slug: str, alt: str) -> str:
    """Return the content of an SVG file by matplotlib as markup for a page, with a description."""
    root = fromstring(svg)
    width = float(root.attrib["width"].removesuffix("pt")) * _PIXELS_PER_POINT
    body = "\n".join([*_ticks(root), *_markup(_visible(root))])
    shapes = [shape for defs in root.iter(f"{_SVG}defs") for shape in defs]
    used = "".join(f"{_element(shape, 2)}\n" for shape in shapes if f"#{shape.get('id')}" in body)
    return themed(
        f'<svg viewBox="{_rounded(root.attrib["viewBox"], 1)}" width="{width:.0f}"'
        f' style="min-width:{0.7 * width:.0f}px" role="img" aria-labelledby="{slug}-alt">'
        f'<title id="{slug}-alt">{escape(alt)}</title>\n<defs>\n{used}</defs>\n'
        f'<g id="drawing-{slug}">{body}</g>\n</svg>\n'
    ).replace("'DejaVu Sans'", _FONTS)


def share_styles(figures: Sequence[Figure]) -> tuple[list[Figure], str]:
    """Replace the styles of all figures of a page by classes, whose rules it returns, and define each shape once."""
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
    for number, figure in enumerate(figures):
        # Each panel refers to the drawing, so its name is short.
        svg = figure.svg.replace(f'<g id="drawing-{figure.slug}">', f'<g id="d{number}">')
        svg = re.sub(r' style="([^"]*)"', class_of, svg)
        svg = re.sub(r'<(path|clipPath) id="(\w+)"(.*)\n', define, svg).replace("<defs>\n</defs>\n", "")
        svg = re.sub(r'( href="#|="url\(#)(\w+)', lambda match: match[1] + ids[match[2]], svg)
        shared.append(replace(figure, svg=svg, drawing=f"d{number}"))
    return shared, "".join(f".{name}{{{style}}}\n" for style, name in classes.items())


def _ticks(root: Element) -> Iterator[str]:
    """Yield the grid lines and ticks of all axes, which are behind everything else, as one element for each style."""
    markers = {element.get("id"): element for element in root.iter(f"{_SVG}path")}
    lines: dict[str, list[str]] = {}
    for element in (
        part for group in root.iter() if _TICK.match(group.get("id", "")) for part in group.iter()
    ):
        if element.tag == f"{_SVG}use":
            marker = markers[element.attrib[_HREF].removeprefix("#")]
            at = float(element.attrib["x"]), float(element.attrib["y"])
            lines.setdefault(_style(marker), []).append(_shape(marker.attrib["d"], 1, at))
        elif element.tag == f"{_SVG}path" and not element.get("id"):
            lines.setdefault(_style(element), []).append(_shape(element.get("d", ""), 1))
    for style, shapes in lines.items():
        yield f'<path d="{"".join(shapes)}" style="{style}"/>'


def _visible(parent: Element) -> Iterator[Element]:
    """Yield the elements that can be seen or referred to, without groups that only have an id."""
    for element in parent:
        tag, name = element.tag.removeprefix(_SVG), element.get("id", "")
        if tag == "g" and _TICK.match(name):
            yield from element.iter(f"{_SVG}text")
        elif tag == "g" and set(element.attrib) <= {"id"}:
            yield from _visible(element) if name != _BACKGROUND else ()
        # matplotlib writes a path without a shape for a line outside its axes.
        elif tag not in ("metadata", "defs") and (
            tag != "path" or (element.get("d") and _style(element) != "fill:none")
        ):
            yield element


def _markup(elements: Iterable[Element]) -> Iterator[str]:
    # Neighbors that differ in their shape only, such as the intervals of a series, become one element.
    for (tag, attributes), alike in itertools.groupby(elements, _kind):
        if tag == "line":
            yield f'<path d="{"".join(_shape(element.attrib["d"], 1) for element in alike)}"{attributes}/>'
        elif tag == "clipped":
            yield f"<g{attributes}>{''.join(part for element in alike for part in _markup(_visible(element)))}</g>"
        else:
            yield from (_element(element, 1) for element in alike)


def _kind(element: Element) -> tuple[str, str]:
    """Return whether an element is a line or a group that is only clipped, and its attributes without its shape."""
    style = _style(element)
    if "opacity" in style or "transform" in element.attrib:
        return "", ""
    is_line = element.tag == f"{_SVG}path" and "fill:none" in style
    kind = "line" if is_line else "clipped" if element.tag == f"{_SVG}g" else ""
    return kind, _attributes(element, 1, without=("d", "id")) if kind else ""


def _element(element: Element, digits: int) -> str:
    tag = element.tag.removeprefix(_SVG)
    start = f"<{tag}{_attributes(element, digits, without=('id',) if tag == 'g' else ())}"
    content = _text(element) if tag == "text" else "".join(_markup(_visible(element)))
    return f"{start}>{content}</{tag}>" if content else f"{start}/>"


def _text(element: Element) -> str:
    # With escaped quotes, no text looks like an attribute to `share_styles`.
    parts = [escape(element.text or "")]
    for child in element:
        tag = child.tag.removeprefix(_SVG)
        parts.append(f"<{tag}{_attributes(child, 1)}>{_text(child)}</{tag}>{escape(child.tail or '')}")
    return "".join(parts).strip()


def _attributes(element: Element, digits: int, without: Sequence[str] = ()) -> str:
    parts = []
    for key, value in element.attrib.items():
        if key == "style":
            value = _style(element)
        elif key == "d":
            value = _shape(value, digits)
        elif key in ("x", "y", "width", "height", "transform"):
            value = _rounded(value, digits)
        if key not in without and not value.startswith("rotate(0 "):
            # The names of fonts are in single quotes, which a style sheet needs as they are.
            text = escape(value, quote=False).replace('"', "&quot;")
            parts.append(f' {"href" if key == _HREF else key}="{text}"')
    return "".join(parts)


def _style(element: Element) -> str:
    return re.sub(r"\s*([:;,])\s*", r"\1", element.get("style", "")).strip(";")


def _shape(path: str, digits: int, at: tuple[float, float] = (0, 0)) -> str:
    """Return a path, moved to a position. Lines become relative, which takes fewer digits; curves must not be moved."""

    def line(match: re.Match[str]) -> str:
        numbers = [float(number) for number in re.findall(r"[-\d.e]+", match[1])]
        points = [
            (round(x + at[0], digits), round(y + at[1], digits))
            for x, y in zip(numbers[::2], numbers[1::2], strict=True)
        ]
        steps = ((b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(points) if a != b)
        lines = (f"h{x:.9f}" if not y else f"v{y:.9f}" if not x else f"l{x:.9f} {y:.9f}" for x, y in steps)
        return "".join((f"M{points[0][0]} {points[0][1]}", *lines))

    curved = re.search("[A-KN-Y]", path)
    text = _rounded(path if curved else re.sub(r"M([^Mz]*)", line, path), digits)
    return re.sub(r"(?<![\d.])(-?)0\.", r"\1.", re.sub(r"\s+(?=-)|\s*([A-Za-z])\s*", r"\1", text)).strip()


def _rounded(text: str, digits: int) -> str:
    return re.sub(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", lambda n: f"{round(float(n[0]), digits) + 0.0:g}", text)
