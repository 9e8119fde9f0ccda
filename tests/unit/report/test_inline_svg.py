"""Figures on a page: the same texts and shapes as in their files, in a fraction of the bytes."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from k8sdds.report.figures import canvas, inline_svg

TEXT = '5 < 7 & more\nthan " style="color:red" href="#missing" url(#missing)'


def drawn(folder: Path, slug: str) -> canvas.Figure:
    drawing, (ax,) = canvas.grid([2], 1, 3.7, left=0.5, right=0.2, head=0.3, foot=0.5)
    ax.vlines([1, 2, 3], [0, 1, 2], [3, 4, 5], colors="#0072b2")
    ax.plot([1, 2, 3], [1, 2, 1], "o-", color="#d55e00")
    ax.fill_between([1, 2], [1, 1], [2, 2], color="#009e73", alpha=0.3)
    ax.text(1, 1, TEXT)
    return canvas.save(drawing, folder, slug, "section", "title", "alt & <more>", "caption")


def texts(svg: str) -> list[str]:
    elements = ElementTree.fromstring(svg).iter()
    return ["".join(element.itertext()).strip() for element in elements if "text" in element.tag]


def styles(svg: str) -> list[str | None]:
    shown = re.sub(r"<defs>.*?</defs>", "", svg, flags=re.DOTALL)
    return [element.get("style") for element in ElementTree.fromstring(shown).iter()]


def test_texts_and_shapes_are_those_of_the_file(tmp_path: Path) -> None:
    figure, file = drawn(tmp_path, "one"), (tmp_path / "one.svg").read_text()
    assert texts(figure.svg) == texts(file) and set(TEXT.split("\n")) <= set(texts(file))
    # The markers of the line, and the area; ticks are lines.
    assert figure.svg.count("<use") == 3 + 1
    (ticks,) = re.findall(r'<path d="([^"]*)"[^>]*stroke:var\(--muted\);stroke-width:0.6', figure.svg)
    used = re.findall(r'<use [^>]* x="([\d.]+)" y="([\d.]+)"[^>]*stroke: #62626b', file)
    assert len(used) > 6
    assert [tuple(map(float, at)) for at in re.findall(r"M([\d.]+) ([\d.]+)[hv]", ticks)] == [
        (round(float(x), 1), round(float(y), 1)) for x, y in used
    ]
    assert figure.svg.startswith("<svg viewBox=") and "alt &amp; &lt;more&gt;</title>" in figure.svg
    assert not any(part in figure.svg for part in ("xlink", "<metadata", "<style", "#ffffff"))
    # The lines of a series are one element, and areas keep their opacity.
    (intervals,) = (p for p in re.findall(r'<path d="([^"]*)"[^>]*c-0072b2', figure.svg) if p.count("M") == 3)
    assert intervals.count("v") == 3 and "fill:#009e73;fill-opacity:0.3" in figure.svg


def test_figures_of_a_page_share_styles_and_markers(tmp_path: Path) -> None:
    figures = [drawn(tmp_path, slug) for slug in ("one", "two")]
    found, rules = inline_svg.share_styles(figures)
    shared = [figure.svg for figure in found]
    assert "style=" not in re.sub(r"<text.*?</text>", "", "".join(shared)) and "color:red" not in rules
    assert rules.count("{") == len(set(rules.splitlines()))
    assert "&" not in rules and "font-family:'DejaVu Sans',Verdana" in rules
    tags = "".join(re.findall(r"<[^>]*>", "".join(shared)))
    ids, used = re.findall(r' id="([^"]*)"', tags), re.findall(r'(?:href="#|url\(#)([^")]*)', tags)
    assert len(ids) == len(set(ids)) and set(used) <= set(ids) and {"one-alt", "two-alt"} <= set(ids)
    assert len({figure.drawing for figure in found} & set(ids)) == 2
    # The markers of the first figure are those of the second.
    assert "<defs>" in shared[0] and "<defs>" not in shared[1] and "<use" in shared[1]
    for figure, markup in zip(figures, shared, strict=True):
        assert len(markup) < len((tmp_path / f"{figure.slug}.svg").read_text()) / 2
        for name, style in re.findall(r"\.(f\d+)\{(.*)\}", rules):
            markup = markup.replace(f' class="{name}"', f' style="{style}"')
        assert styles(markup) == styles(figure.svg) and texts(markup) == texts(figure.svg)


@pytest.mark.parametrize(
    ("path", "digits", "at", "shown"),
    [
        ("M 1.04 2 L 1.04 12.34 L 11.24 12.34 L 12.5 0.31 z", 1, (0, 0), "M1 2v10.3h10.2l1.3-12z"),
        ("M 0 0 L 0 2.5", 1, (83.52, 158.44), "M83.5 158.4v2.5"),
        ("M 0 1.22 C 0.32 1.22 0.63 1.09 0.86 0.86 z", 2, (0, 0), "M0 1.22C.32 1.22 .63 1.09 .86 .86z"),
    ],
)
def test_shapes_have_the_shortest_numbers(
    path: str, digits: int, at: tuple[float, float], shown: str
) -> None:
    assert inline_svg._shape(path, digits, at) == shown


def test_shapes_end_where_they_end_in_the_file() -> None:
    # Rounded differences would move the end by 0.4.
    steps = " ".join(f"L {0.04 * step:.2f} {step % 2}" for step in range(1, 11))
    shape = inline_svg._shape(f"M 0 0 {steps}", 1)
    assert sum(float(dx) for dx in re.findall(r"[lh](-?[\d.]+)", shape)) == 0.4
