#!/usr/bin/env python3
"""Write the generated parts of the reference in docs/: commands, keys of YAML files, columns of results, networks.

`.venv/bin/python scripts/reference.py` rewrites the pages; `--check` only lists the pages that are out of date. Each
command has a page of its own in docs/reference/commands. On other pages and in mkdocs.yml, a generated part is between
two comment lines, and everything else is written by hand.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from k8sdds import links, networks, workloads
from k8sdds.campaign import experiments
from k8sdds.cli.app import command_tree
from k8sdds.deploy import profiles
from k8sdds.model.application import Application
from k8sdds.model.link_choice import LinkChoice
from k8sdds.networks.network import Difference
from k8sdds.results.columns import GROUPS, Column, Metric
from k8sdds.results.fingerprint import Fingerprint
from k8sdds.results.metrics import SOME_TESTS
from k8sdds.results.record import COLUMNS
from k8sdds.system.errors import EXIT_CODES

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
COMMANDS = "reference/commands"
"""The folder of the commands' pages in docs/."""
PART = re.compile(
    r"(?P<begin><!-- generated: (?P<name>[a-z -]+) -->\n)(?P<text>.*?)(?P<end>(?:# )?<!-- end of generated text -->)",
    re.DOTALL,
)
EPILOG = re.compile(r"^\[bold\](?P<title>.+):\[/bold\]\n(?P<lines>(?:.+\n)+)", re.MULTILINE)
"""The end of a command's help, as `k8sdds.cli.commands` formats it."""
SHORTHANDS = ("name", "level", "source")
"""Keys of a mapping that can be written as the value of this key alone, such as `networks: host`."""


def rewritten(page: str) -> str:
    """Return a page with its generated parts replaced by those of the current code.

    Raises:
        KeyError: The page has a part of an unknown name.
    """
    return PART.sub(lambda part: f"{part['begin']}\n{PARTS[part['name']]()}\n{part['end']}", page)


def outdated() -> Iterator[tuple[Path, str]]:
    """Yield each page whose generated parts are out of date, with its new text, which is empty if it has to go."""
    folder = DOCS / COMMANDS
    commands = {folder / f"{name}.md": text for name, text in sections().items() if name}
    stale = dict.fromkeys(set(folder.glob("*.md")) - set(commands), "")
    written = {path: rewritten(_text(path)) for path in (ROOT / "mkdocs.yml", *DOCS.rglob("*.md"))}
    for path, new in sorted({**written, **commands, **stale}.items()):
        if new != _text(path):
            yield path, new


def _text(page: Path) -> str:
    return page.read_text(encoding="utf-8") if page.exists() else ""


@cache
def sections() -> dict[str, str]:
    """Map each command to its arguments, options and examples, as typer documents them; empty means `k8sdds` itself."""
    command = [sys.executable, "-m", "typer", "k8sdds.cli.app", "utils", "docs", "--name", "k8sdds"]
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"}
    page = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    _, *texts = re.split(r"^(?=#+ `)", page, flags=re.MULTILINE)
    summaries = dict(_summary(text) for text in texts)
    found: dict[str, str] = {}
    for text in texts:
        name = "".join(_summary(text)[0].split()[1:2])
        found[name] = found.get(name, "") + _section(text, summaries)
    return {name: text.rstrip() + "\n" for name, text in found.items()}


def commands() -> str:
    """Return the options of `k8sdds`, and its commands with the first sentence of their description."""
    options = re.sub(r"\*\*Commands\*\*:\n\n(\* .*\n)+\n?", "", sections()[""])
    lists = (
        f"## {panel}\n\n"
        + "".join(f"* [`{name}`](commands/{name}.md): {_summary(sections()[name])[1]}\n" for name in names)
        for panel, names in panels().items()
    )
    return options.partition("\n\n")[2].rstrip() + "\n\n" + "\n".join(lists)


def panels() -> dict[str, list[str]]:
    """Return the names of the commands by the panel of `k8sdds --help`, in its order."""
    found: dict[str, list[str]] = {}
    for name, command in command_tree().commands.items():
        if not command.hidden:
            found.setdefault(command.rich_help_panel, []).append(name)
    return found


def links_to_commands() -> str:
    """Return one line of links for each panel of `k8sdds --help`."""
    return (
        "\n".join(
            f"- {panel}: " + " · ".join(f"[{name}]({COMMANDS}/{name}.md)" for name in names)
            for panel, names in panels().items()
        )
        + "\n"
    )


def navigation() -> str:
    """Return the pages of the commands for the navigation of the site."""
    return "".join(
        f"          - {panel}:\n"
        + "".join(f"              - {name}: {COMMANDS}/{name}.md\n" for name in names)
        for panel, names in panels().items()
    )


def _summary(section: str) -> tuple[str, str]:
    """Return the command that a section describes and the first sentence of its description."""
    title, _, text = section.partition("\n\n")
    return title.strip("# `"), re.split(r"(?<=\.)\s|\n\n", text, maxsplit=1)[0].replace("\n", " ")


def _section(section: str, summaries: dict[str, str]) -> str:
    """Return a section one level higher, without `--help`, and with links to the commands of a group."""
    parent, _ = _summary(section)

    def linked(line: re.Match[str]) -> str:
        command = f"{parent} {line[1]}"
        return (
            f"* [`{line[1]}`](#{_anchor(command)}): {summaries[command]}" if command in summaries else line[0]
        )

    section = re.sub(r"^\* `([a-z-]+)`:.*$", linked, section, flags=re.MULTILINE)
    section = EPILOG.sub(_listing, section)
    section = re.sub(r"^\* `[^`]*--help`:.*\n", "", section, flags=re.MULTILINE)
    section = re.sub(r"\*\*Options\*\*:\n\n(?!\*)\n*", "", section)
    return section.removeprefix("#")


def _listing(epilog: re.Match[str]) -> str:
    """Return the end of a command's help as a code block; the page has a table of the exit codes."""
    if epilog["title"] == "Exit codes":
        return ""
    return f"**{epilog['title']}**:\n\n```\n{epilog['lines'].replace(chr(92) + '[', '[')}```\n"


def exit_codes() -> str:
    """Return a table of the exit codes."""
    return _table(("exit code", "meaning"), ((str(code), meaning) for code, meaning in EXIT_CODES.items()))


def keys(schema: dict[str, Any], titles: dict[str, str]) -> str:
    """Return tables of the keys of a YAML file, one for each mapping of its JSON Schema.

    Args:
        schema: the JSON Schema of the file.
        titles: heading of each mapping, by the name of its definition (empty means the file itself), in the order of
            the page. Definitions without a title have no table.
    """
    definitions = {"": schema, **schema["$defs"]}
    tables = []
    for name, title in titles.items():
        definition = definitions[name]
        definition = definition if "properties" in definition else definition["anyOf"][-1]
        summary, _, _ = definition["description"].partition("\n\n")
        rows = []
        for key, value in definition["properties"].items():
            required = key in definition.get("required", ())
            default = "required" if required else _default(value.get("default"))
            rows.append((f"`{key}`", _values(value, titles), default, value.get("description", "")))
        tables.append(f"### {title}\n\n{summary}\n\n" + _table(("key", "values", "default", "meaning"), rows))
    return "\n".join(tables)


def _values(schema: dict[str, Any], titles: dict[str, str]) -> str:
    """Describe the values that a key accepts."""
    match schema:
        case {"$ref": reference}:
            name = reference.rpartition("/")[2]
            return f"[mapping](#{_anchor(titles[name])})" if name in titles else "mapping"
        case {"allOf": [only]}:
            return _values(only, titles)
        case {"anyOf": variants}:
            texts = [_values(variant, titles) for variant in variants if variant.get("type") != "null"]
            return " or ".join(dict.fromkeys(texts))
        case {"enum": values}:
            return ", ".join(f"`{value}`" for value in values)
        case {"const": value}:
            return f"`{value}`"
        case {"type": "array", "items": items}:
            return f"list of: {_values(items, titles)}"
        case {"type": "integer" | "number"}:
            return _range(schema)
        case {"type": "boolean"}:
            return "`true`, `false`"
        case {"type": "object"}:
            return "mapping"
        case _:
            return "text"


def _range(schema: dict[str, Any]) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if low is not None and high is not None:
        return f"{low:g} to {high:,.0f}"
    limits = [
        text.format(value)
        for text, value in (
            ("at least {:g}", low),
            ("above {:g}", above),
            ("at most {:,.0f}", high),
            ("below {:g}", below),
        )
        if value is not None
    ]
    return "number " + ", ".join(limits) if limits else "number"


def _default(value: Any) -> str:
    if isinstance(value, list) and len(value) == 1:
        return _default(value[0])
    if isinstance(value, dict):
        given = {key: item for key, item in value.items() if item is not None}
        if len(given) == 1 and next(iter(given)) in SHORTHANDS:
            return _default(next(iter(given.values())))
        return ""
    if value in (None, "", []):
        return ""
    return f"`{value}`" if isinstance(value, str) else f"`{json.dumps(value)}`"


def columns() -> str:
    """Return the columns of trials.jsonl, one table for each group."""
    tables = []
    for group in GROUPS:
        rows = [
            (f"`{column.name}`", column.kind, column.source, _described(column))
            for column in COLUMNS.values()
            if column.group == group
        ]
        title = group[0].upper() + group[1:]
        tables.append(f"### {title}\n\n" + _table(("key", "type", "source", "meaning"), rows))
    return "\n".join(tables)


def _described(column: Column) -> str:
    since = (
        f"; defined so since schema {column.since}" if isinstance(column, Metric) and column.since > 1 else ""
    )
    only = workloads.trials_with(column.name) if column.only == SOME_TESTS else column.only
    return column.description + (f"; only in {only}" if only else "") + since


def fingerprint() -> str:
    """Return the keys of a fingerprint."""
    fields = Fingerprint.model_fields.items()
    return _table(("key", "meaning"), ((f"`{name}`", field.description or "") for name, field in fields))


def named_links() -> str:
    """Return the named links: what they do, and where each value comes from."""
    parts = []
    for name in links.LINKS.names():
        loaded = links.load(name)
        link = loaded.link
        rows = [(way, direction.describe()) for way, direction in link.directions.items()]
        rows += [("outages", outage.describe()) for outage in link.outages]
        sources = ((f"`{key}`", source) for key, source in loaded.sources.items())
        about = f"{loaded.title}. {loaded.description}".strip()
        parts.append(
            f"### {name}\n\n{about}\n\n{_table(('direction', 'what it does'), rows)}\n"
            + _table(("value", "source"), sources)
        )
    return "\n".join(parts)


def detected() -> str:
    """Return the signs by which the network of a cluster is detected, one row for each plugin."""
    rows = []
    for plugin in (*networks.PLUGINS, *networks.SECONDARY):
        modes = [f"`{plugin.name}-{mode}`" for mode in plugin.modes]
        names = ", ".join([f"`{plugin.name}`", *modes])
        kinds = (("annotation", plugin.annotations), ("label", plugin.labels), ("condition", plugin.reasons))
        signs = [f"{kind} `{sign}`" for kind, signs in kinds for sign in signs]
        signs += [f"image `{image}`" for image in plugin.images]
        agents = [f"DaemonSet `{name}`" for name in (*plugin.daemonsets, *plugin.agents)]
        agents += [f"the process of {name}" for name in plugin.embedded]
        config_maps = ", ".join(f"`{name}`" for name in plugin.config_maps)
        rows.append((plugin.title, names, ", ".join(agents), ", ".join(signs), config_maps))
    return _table(("plugin", "names", "agent", "signs", "ConfigMaps with the mode"), rows)


def declared_differences() -> str:
    """Return one row for each declared difference between the lab and real nodes."""
    of: dict[Difference, list[str]] = {}
    for name, network in networks.NETWORKS.items():
        for difference in network.kernel_differences:
            of.setdefault(difference, []).append(f"`{name}`")
    rows = ((", ".join(names), item.in_lab, item.on_cluster, item.cost) for item, names in of.items())
    return _table(("network", "in the lab", "on a node of the cluster", "cost"), rows)


def network_facts() -> str:
    """Return one row of facts for each network."""
    rows = []
    for network in networks.NETWORKS.values():
        mtu = ", ".join(
            [str(network.default_mtu)]
            + [
                f"{e.default_mtu} in {e.name}"
                for e in network.engines
                if e.default_mtu != network.default_mtu
            ]
        )
        rows.append(
            (
                f"`{network.name}`",
                network.title,
                mtu,
                network.multicast or "none",
                network.encryption or "none",
                "yes" if network.policy else "no",
                network.fidelity,
            )
        )
    header = (
        "network",
        "plugin and mode",
        "pod MTU",
        "multicast between nodes",
        "encryption",
        "NetworkPolicy",
        "fidelity in the lab",
    )
    return _table(header, rows)


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    header = tuple(header)
    lines = [header, ("---",) * len(header), *rows]
    cells = ([re.sub(r"(?<!\\)\|", r"\\|", cell.replace("\n", " ")) for cell in line] for line in lines)
    return "".join("| " + " | ".join(line) + " |\n" for line in cells)


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")


EXPERIMENT = {
    "": "Experiment",
    "Sweep": "Sweep",
    "NetworkChoice": "Network",
    "TestChoice": "Test",
    "SecurityChoice": "Security",
    "Background": "Background",
}
APPLICATION = {"": "Application", "Flow": "Flow", "Node": "Node", "Chain": "Chain", "Choices": "Choices"}
LINK = {"": "Link"} | {
    name: name for name in ("Direction", "Delay", "Loss", "Rate", "Queue", "Outage", "Offloads")
}
PROFILE = {
    "": "Profile",
    "Access": "Access",
    "Node": "Node",
    "Kubernetes": "Kubernetes",
    "PodNetwork": "Network",
    "MetricsServer": "Metrics server",
    "Registry": "Registry",
    "Proxy": "Proxy",
    "Software": "Software",
}
PARTS: dict[str, Callable[[], str]] = {
    "commands": commands,
    "links to commands": links_to_commands,
    "navigation of commands": navigation,
    "exit codes": exit_codes,
    "keys of an experiment": lambda: keys(experiments.json_schema(), EXPERIMENT),
    "keys of an application": lambda: keys(Application.model_json_schema(), APPLICATION),
    "keys of a link": lambda: keys(LinkChoice.model_json_schema(), LINK),
    "keys of a profile": lambda: keys(profiles.schema(), PROFILE),
    "columns": columns,
    "networks": network_facts,
    "links": named_links,
    "differences": declared_differences,
    "fingerprint": fingerprint,
    "detected networks": detected,
}
"""Names in the comment lines that begin a generated part, with the function that returns its text."""


def main() -> int:
    """Rewrite the pages; with `--check`, list those that are out of date and return 1 if there are any."""
    check = "--check" in sys.argv[1:]
    pages = list(outdated())
    for path, text in pages:
        if not check and text:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif not check:
            path.unlink()
        print(f"{'out of date' if check else 'written'}: {path.relative_to(DOCS.parent)}")
    return 1 if check and pages else 0


if __name__ == "__main__":
    sys.exit(main())
