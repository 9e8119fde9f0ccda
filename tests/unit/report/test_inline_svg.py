"""Figures on a page: the same texts and shapes as in their files, in a fraction of the bytes."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from k8sdds.report.figures import canvas, inline_svg

SVG = "{http://www.w3.org/2000/svg}"


def drawn(folder: Path, slug: str) -> canvas.Figure:
    drawing = canvas.new(4, 3)
    ax = canvas.axes(drawing, 0.5, 0.2, 3, 2)
    ax.vlines([1, 2, 3], [0, 1, 2], [3, 4, 5], colors="#0072b2")
    ax.plot([1, 2, 3], [1, 2, 1], "o-", color="#d55e00")
    ax.fill_between([1, 2], [1, 1], [2, 2], color="#009e73", alpha=0.3)
    ax.text(1, 1, "5 < 7 & more\nthan one line")
    return canvas.save(drawing, folder, slug, "section", "title", "alt & <more>", "caption")


def texts(svg: str) -> list[str]:
    return [
        "".join(element.itertext()).strip()
        for element in ElementTree.fromstring(svg).iter()
        if "text" in element.tag
    ]


def resolved(svg: str, rules: str) -> ElementTree.Element:
    """Return the markup with the style of each class."""
    for name, style in re.findall(r"\.(f\d+)\{(.*)\}", rules):
        svg = svg.replace(f' class="{name}"', f' style="{style}"')
    return ElementTree.fromstring(svg)


def test_texts_and_markers_are_those_of_the_file(tmp_path: Path) -> None:
    figure = drawn(tmp_path, "one")
    file = (tmp_path / "one.svg").read_text()
    assert texts(figure.svg) == texts(file) and "5 < 7 & more" in " ".join(texts(file))
    # The markers of the line, and the area; ticks are lines.
    assert figure.svg.count("<use") == 3 + 1
    (ticks,) = re.findall(r'<path d="([^"]*)"[^>]*stroke:var\(--muted\);stroke-width:0.6', figure.svg)
    used = re.findall(r'<use [^>]* x="([\d.]+)" y="([\d.]+)"[^>]*stroke: #62626b', file)
    assert len(used) > 6
    assert [tuple(map(float, at)) for at in re.findall(r"M([\d.]+) ([\d.]+)[hv]", ticks)] == [
        (round(float(x), 1), round(float(y), 1)) for x, y in used
    ]
    assert figure.svg.startswith("<svg viewBox=") and "alt &amp; &lt;more&gt;</title>" in figure.svg
    assert "xlink" not in figure.svg and "<metadata" not in figure.svg and "<style" not in figure.svg


def test_lines_of_a_series_are_one_element_and_areas_keep_their_opacity(tmp_path: Path) -> None:
    markup = drawn(tmp_path, "one").svg
    intervals = [
        path for path in re.findall(r'<path d="([^"]*)"[^>]*c-0072b2', markup) if path.count("M") == 3
    ]
    assert len(intervals) == 1 and intervals[0].count("v") == 3
    assert "fill:#009e73;fill-opacity:0.3" in markup


def test_figures_of_a_page_share_styles_and_markers(tmp_path: Path) -> None:
    figures = [drawn(tmp_path, slug) for slug in ("one", "two")]
    shared, rules = inline_svg.share_styles(figures)
    shared = [figure.svg for figure in shared]
    assert "style=" not in "".join(shared) and rules.count("{") == len(set(rules.splitlines()))
    assert "&" not in rules and "font-family:'DejaVu Sans',Verdana" in rules
    ids = re.findall(r' id="([^"]*)"', "".join(shared))
    used = re.findall(r'(?:href="#|url\(#)([^")]*)', "".join(shared))
    assert len(ids) == len(set(ids)) and set(used) <= set(ids) and {"one-alt", "two-alt"} <= set(ids)
    # The markers of the first figure are those of the second.
    assert "<defs>" in shared[0] and "<defs>" not in shared[1] and "<use" in shared[1]
    for figure, markup in zip(figures, shared, strict=True):
        assert len(markup) < len((tmp_path / f"{figure.slug}.svg").read_text()) / 2
        before, after = (
            [element.get("style") for element in root.iter()]
            for root in (
                ElementTree.fromstring(re.sub(r"<defs>.*?</defs>", "", figure.svg, flags=re.DOTALL)),
                resolved(re.sub(r"<defs>.*?</defs>", "", markup, flags=re.DOTALL), rules),
            )
        )
        assert before == after


def test_texts_are_never_styles_or_references(tmp_path: Path) -> None:
    drawing = canvas.new(4, 3)
    ax = canvas.axes(drawing, 0.5, 0.2, 3, 2)
    text = '" style="color:red" href="#missing" url(#missing)'
    ax.text(1, 1, text)
    (figure,), rules = inline_svg.share_styles([canvas.save(drawing, tmp_path, "one", "s", "t", text, "c")])
    assert "red" not in rules
    assert texts(figure.svg)[-1] == text


def test_shapes_end_where_they_end_in_the_file() -> None:
    assert (
        inline_svg._shape("M 1.04 2 L 1.04 12.34 L 11.24 12.34 L 12.5 0.31 z", 1) == "M1 2v10.3h10.2l1.3-12z"
    )
    assert inline_svg._shape("M 0 0 L 2 0 L 3.5 0 L 3.5 4 L 3.5 3 L 0 3 L -1 3", 1) == "M0 0h3.5v4v-1h-4.5"
    assert inline_svg._shape("M 0 0 L 0 2.5", 1, (83.52, 158.44)) == "M83.5 158.4v2.5"
    assert (
        inline_svg._shape("M 0 1.22 C 0.32 1.22 0.63 1.09 0.86 0.86 z", 2)
        == "M0 1.22C0.32 1.22 0.63 1.09 0.86 0.86z"
    )
    # Rounded differences would move the end by 0.4.
    steps = " ".join(f"L {0.04 * step:.2f} {step % 2}" for step in range(1, 11))
    drawn = inline_svg._shape(f"M 0 0 {steps}", 1)
    assert sum(float(dx) for dx in re.findall(r"[lh](-?[\d.]+)", drawn)) == 0.4
