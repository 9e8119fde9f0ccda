"""`k8sdds docs`: read the documentation in the terminal."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from k8sdds.cli.commands import Commands
from k8sdds.cli.output import print_table
from k8sdds.cli.terminal import console, print_note, print_step, print_text
from k8sdds.system.errors import InputError
from k8sdds.system.paths import shared
from k8sdds.system.yaml_text import nearest

app = Commands()

MAX_FOUND = 5
"""Most pages that an unknown topic names."""


def topics() -> dict[str, Path]:
    """Return the pages by topic: the page's name, with its folder if another page goes first.

    The page of a command goes last, and a reference goes before a guide of the same name.
    """
    folder = shared("docs")
    # Explanations come last: first what a user does, then what the keys and commands mean.
    pages = sorted(folder.rglob("*.md"), key=lambda page: (folder / "explanation" in page.parents, page))
    last = {page.stem: page for page in sorted(pages, key=lambda page: page.parent.name != "commands")}
    return {
        page.stem if last[page.stem] == page else str(page.relative_to(folder).with_suffix("")): page
        for page in pages
    }


@app.add("k8sdds docs", "k8sdds docs experiments")
def docs(
    topic: Annotated[str | None, "TOPIC: Page to read. Default: list the topics."] = None,
) -> None:
    """Print a page of the documentation, or list the topics."""
    pages = topics()
    if topic is None:
        print_table([{"topic": name, "page": _title(page)} for name, page in pages.items()])
        print_step("\nTry: k8sdds docs TOPIC")
        return
    if topic not in pages:
        found = ", ".join(_containing(topic, pages))
        raise InputError(
            f"there is no topic {topic!r}{nearest(topic, list(pages))}",
            f"read one that contains it: {found}" if found else "list them: k8sdds docs",
        )
    text = pages[topic].read_text(encoding="utf-8")
    if not console().is_terminal:
        print_text(text)
    else:
        from rich.markdown import Markdown

        os.environ.setdefault(
            "LESS", "-FRX"
        )  # less shows colors, and ends at once if the page fits the terminal
        with console().pager(styles=True):
            console().print(Markdown(text))
    for other in pages:
        if other != topic and Path(other).stem == Path(topic).stem:
            print_note(f"Another page of this name: k8sdds docs {other}")


def _containing(word: str, pages: Mapping[str, Path]) -> list[str]:
    """Return the topics of the pages that contain a word, those with it in headings and most often first."""
    pattern = re.compile(rf"\b{re.escape(word)}\b", re.IGNORECASE)
    counts = {}
    for topic, page in pages.items():
        text = page.read_text(encoding="utf-8")
        headings = "\n".join(line for line in text.splitlines() if line.startswith("#"))
        if pattern.search(text):
            counts[topic] = len(pattern.findall(headings)), len(pattern.findall(text))
    return sorted(counts, key=lambda topic: counts[topic], reverse=True)[:MAX_FOUND]


def _title(page: Path) -> str:
    """Return the first heading of a page."""
    lines = page.read_text(encoding="utf-8").splitlines()
    return next(line.removeprefix("# ") for line in lines if line.startswith("# "))
