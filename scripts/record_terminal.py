#!/usr/bin/env python3
"""Run a command in a terminal for real and write what it showed as an animated SVG.

    .venv/bin/python scripts/record_terminal.py --folder /tmp recording.svg .venv/bin/k8sdds run quickstart

The command runs in the folder under a pseudo-terminal, so that it prints what a user sees. The image shows the
screen at moments when it had changed, in quick motion, and then its last state; a reader who prefers reduced motion
sees only that. It loads no font and no script. Requires the extra `docs` of this project.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import re
import select
import shlex
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pyte

CELL_WIDTH, CELL_HEIGHT, FONT_SIZE, MARGIN, BAR = 8.4, 18, 14, 14, 30
"""Sizes in the image's units: a character, the text, the frame of the window and its title bar."""
COLORS = {
    "default": "#d8dee9", "black": "#4c566a", "red": "#e06c75", "green": "#98c379", "brown": "#e5c07b",
    "blue": "#61afef", "magenta": "#c678dd", "cyan": "#56b6c2", "white": "#d8dee9",
}  # fmt: skip
BACKGROUND, TITLE = "#20242c", "#8a93a5"
LONGEST_STILL_S = 1.5
"""Longest time for which the recording shows one state before the last."""
LAST_STILL_S = 8.0


Line = tuple[tuple[str, bool, str], ...]
"""Runs of characters with the same style: color, bold, text."""


@dataclass(frozen=True)
class Screen:
    """The state of the terminal at a time, in seconds since the start."""

    at_s: float
    lines: tuple[Line, ...]
    """Lines without the empty ones at the end."""

    def __str__(self) -> str:
        return "\n".join("".join(text for _, _, text in line) for line in self.lines)


def record(command: list[str], typed: str, folder: Path, columns: int, rows: int) -> list[Screen]:
    """Run the command in a folder and a terminal of this size, and return the states of the screen.

    `typed` is the command line as the first line of the recording shows it.

    Raises:
        SystemExit: The command failed.
    """
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": str(rows)}
    environment.pop("NO_COLOR", None)
    terminal = pyte.Screen(columns, rows)
    stream = pyte.ByteStream(terminal)
    stream.feed(f"$ {typed}\r\n".encode())
    start, screens = time.monotonic(), [Screen(0.0, _lines(terminal))]
    process = subprocess.Popen(command, stdin=child, stdout=child, stderr=child, cwd=folder, env=environment)
    os.close(child)
    for output in _output(parent):
        stream.feed(output)
        if (lines := _lines(terminal)) != screens[-1].lines:
            screens.append(Screen(time.monotonic() - start, lines))
    code = process.wait()
    if code:
        sys.exit(f"{shlex.join(command)} exited with code {code}:\n{screens[-1]}")
    return screens


def _output(descriptor: int) -> Iterator[bytes]:
    """Yield what the terminal's program printed, in pieces of at least a tenth of a second."""
    while True:
        output = b""
        end = time.monotonic() + 0.1
        while (left := end - time.monotonic()) > 0:
            if select.select([descriptor], [], [], left)[0]:
                try:
                    piece = os.read(descriptor, 65536)
                except OSError:  # the program closed its end
                    piece = b""
                if not piece:
                    yield output
                    return
                output += piece
        if output:
            yield output


def _lines(terminal: pyte.Screen) -> tuple[Line, ...]:
    """Return the lines of the screen as runs of one style."""
    lines = [_line(terminal.buffer[row], terminal.columns) for row in range(terminal.lines)]
    while lines and not lines[-1]:
        lines.pop()
    return tuple(lines)


def _line(cells: Mapping[int, Any], columns: int) -> Line:
    styled = ((cells[column].fg, cells[column].bold, cells[column].data or " ") for column in range(columns))
    runs = [
        (_color(color), bold, "".join(cell[2] for cell in group))
        for (color, bold), group in groupby(styled, key=lambda cell: cell[:2])
    ]
    while runs and not runs[-1][2].strip():
        runs.pop()
    return tuple(runs)


def _color(name: str) -> str:
    """Return pyte's name of a color as SVG writes it."""
    return f"#{name}" if re.fullmatch("[0-9a-f]{6}", name) else COLORS[name.removeprefix("bright")]


def chosen(screens: list[Screen], frames: int) -> list[tuple[float, Screen]]:
    """Return at most `frames` screens, evenly spread over the changes, with the seconds that each is shown."""
    step = max(1, -(-len(screens) // frames))
    kept = [*screens[:-1:step], screens[-1]]
    still = min(LONGEST_STILL_S, 12.0 / len(kept))
    return [(still, screen) for screen in kept[:-1]] + [(LAST_STILL_S, kept[-1])]


def animated(frames: list[tuple[float, Screen]], title: str, columns: int) -> str:
    """Return an SVG that shows the frames one after the other, again and again."""
    width = 2 * MARGIN + columns * CELL_WIDTH
    height = BAR + 2 * MARGIN + max(len(screen.lines) for _, screen in frames) * CELL_HEIGHT
    total_s, at_s = sum(seconds for seconds, _ in frames), 0.0
    numbers: dict[Line, int] = {}
    rules, groups = [], []
    for number, (seconds, screen) in enumerate(frames):
        begin, end = 100 * at_s / total_s, 100 * (at_s + seconds) / total_s
        at_s += seconds
        steps = f"0% {{ opacity: 0 }} {begin:.2f}% {{ opacity: 1 }} {end:.2f}% {{ opacity: 0 }}"
        rules.append(f"@keyframes k{number} {{ {steps} }} #f{number} {{ animation-name: k{number} }}")
        uses = "".join(
            f'<use href="#l{numbers.setdefault(line, len(numbers))}" y="{row * CELL_HEIGHT}"/>'
            for row, line in enumerate(screen.lines)
            if line
        )
        groups.append(f'<g id="f{number}" class="frame">{uses}</g>')
    lines = "\n".join(_drawn(line, number) for line, number in numbers.items())
    style = "\n".join(
        [
            f".frame {{ opacity: 0; animation: {total_s:.1f}s step-end infinite }}",
            *rules,
            f"#f{len(frames) - 1} {{ opacity: 1 }}",  # what a viewer without animations shows
            "@media (prefers-reduced-motion: reduce) { .frame { animation: none !important } }",
            f"text {{ font: {FONT_SIZE}px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace;",
            "  white-space: pre }",
        ]
    )
    middle, text_top = width / 2, BAR + MARGIN + FONT_SIZE
    body = "\n".join(groups)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve" role="img"
  viewBox="0 0 {width:g} {height:g}">
<title>A recording of {escape(title)} in a terminal</title>
<style>
{style}
</style>
<defs>
{lines}
</defs>
<rect width="{width:g}" height="{height:g}" rx="8" fill="{BACKGROUND}"/>
<g fill="{TITLE}"><circle cx="18" cy="15" r="5"/><circle cx="36" cy="15" r="5"/><circle cx="54" cy="15" r="5"/>
<text x="{middle:g}" y="20" text-anchor="middle">{escape(title)}</text></g>
<g transform="translate({MARGIN} {text_top})">
{body}
</g>
</svg>
"""


def _drawn(line: Line, number: int) -> str:
    """Return a line as text whose runs are stretched to the grid, whatever font the viewer has."""
    texts, column = [], 0
    for color, bold, run in line:
        text = run.rstrip()
        start = column + len(text) - len(text := text.lstrip())
        column += len(run)
        if text:
            weight = ' font-weight="bold"' if bold else ""
            texts.append(
                f'<text x="{start * CELL_WIDTH:.1f}" fill="{color}"{weight} '
                f'textLength="{len(text) * CELL_WIDTH:.1f}">{escape(text)}</text>'
            )
    return f'<g id="l{number}">{"".join(texts)}</g>'


def main() -> None:
    """Record the command of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--folder", type=Path, required=True, help="where the command runs")
    parser.add_argument("--columns", type=int, default=96)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--frames", type=int, default=14)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    command = [str(Path(options.command[0]).absolute()), *options.command[1:]]
    title = shlex.join([Path(command[0]).name, *command[1:]])
    screens = record(command, title, options.folder, options.columns, options.rows)
    options.output.write_text(
        animated(chosen(screens, options.frames), title, options.columns), encoding="utf-8"
    )
    print(
        f"{options.output}: {len(screens)} states in {screens[-1].at_s:.0f} s, {options.output.stat().st_size} bytes"
    )


if __name__ == "__main__":
    main()
