"""`k8sdds docs`: read the documentation in the terminal."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from k8sdds.cli.options import completing
from k8sdds.cli.output import print_table
from k8sdds.cli.terminal import console, print_step, print_text
from k8sdds.system.errors import InputError
from k8sdds.system.paths import shared
from k8sdds.system.yaml_text import nearest


def topics() -> dict[str, Path]:
    """Return the pages by topic, which is the page's name, with its folder if a later page has the same name."""
    folder = shared("docs")
    # Explanations come last: first what a user does, then what the keys and commands mean.
    pages = sorted(folder.rglob("*.md"), key=lambda page: (folder / "explanation" in page.parents, page))
    last = {page.stem: page for page in pages}
    return {
        page.stem if last[page.stem] == page else str(page.relative_to(folder).with_suffix("")): page
        for page in pages
    }


def docs(
    topic: Annotated[
        str | None,
        typer.Argument(
            metavar="TOPIC",
            help="Page to read. Default: list the topics.",
            autocompletion=completing("cli.docs", "topics"),
        ),
    ] = None,
) -> None:
    """Print a page of the documentation, or list the topics."""
    pages = topics()
    if topic is None:
        print_table([{"topic": name, "page": _title(page)} for name, page in pages.items()])
        print_step("\nTry: k8sdds docs TOPIC")
        return
    if topic not in pages:
        raise InputError(
            f"there is no topic {topic!r}{nearest(topic, list(pages))}", "list them: k8sdds docs"
        )
    text = pages[topic].read_text(encoding="utf-8")
    if not console().is_terminal:
        print_text(text)
        return
    from rich.markdown import Markdown

    os.environ.setdefault("LESS", "-FRX")  # less shows colors, and ends at once if the page fits the terminal
    with console().pager(styles=True):
        console().print(Markdown(text))


def _title(page: Path) -> str:
    """Return the first heading of a page."""
    lines = page.read_text(encoding="utf-8").splitlines()
    return next(line.removeprefix("# ") for line in lines if line.startswith("# "))
