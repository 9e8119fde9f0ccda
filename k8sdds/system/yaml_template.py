"""Write commented YAML files from a JSON Schema: every key with its meaning, limits and default."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

WIDTH = 110
INDENT = "  "

Path = tuple[str | int, ...]
"""Keys and indexes that lead to a value."""
Lines = list[str]


def render(
    schema: Mapping[str, Any],
    values: Mapping[str, Any],
    notes: Mapping[Path, Sequence[str]] | None = None,
    shown_defaults: Mapping[Path, Any] | None = None,
) -> str:
    """Return YAML text with the given values; all other keys are commented out and show their default.

    A key that is commented out starts with `#` directly before the key. Text starts with `# `. A file in which
    all keys are enabled has the same meaning. By the path of a value, `notes` has comments that precede it, and
    `shown_defaults` its default in a shorter notation than the schema's.
    """
    template = _Template(schema, notes or {}, shown_defaults or {})
    return "\n".join(template.mapping(schema, values, ())).lstrip("\n") + "\n"


def comment(text: str, width: int = WIDTH) -> Lines:
    """Return text as comment lines, without characters that YAML does not allow."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    text = " ".join(printable.split())
    return [
        f"# {line}" for line in textwrap.wrap(text, width - 2, break_long_words=False, break_on_hyphens=False)
    ]


def flow(value: Any) -> str:
    """Return a value as YAML on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow(key)}: {flow(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str):
        return value if _is_plain(value) else f'"{"".join(map(_escaped, value))}"'
    return json.dumps(value)


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08x}"


def _is_plain(text: str) -> bool:
    """Return whether text needs no quotation marks, in a list and as a value."""
    yaml = YAML(typ="safe", pure=True)
    try:
        return bool(yaml.load(f"- {text}\n- [{text}]\n- {text}: {text}") == [text, [text], {text: text}])
    except YAMLError:
        return False


_LIMITS = {
    "minimum": "at least", "exclusiveMinimum": "more than", "maximum": "at most", "exclusiveMaximum": "less than",
}  # fmt: skip


class _Template:
    def __init__(
        self,
        schema: Mapping[str, Any],
        notes: Mapping[Path, Sequence[str]],
        shown_defaults: Mapping[Path, Any],
    ) -> None:
        self._definitions: Mapping[str, Any] = schema.get("$defs", {})
        self._notes = notes
        self._shown_defaults = shown_defaults

    def mapping(self, schema: Mapping[str, Any], values: Mapping[str, Any], path: Path) -> Lines:
        """Return the lines of all keys of an object."""
        lines: Lines = []
        for key, property_schema in schema["properties"].items():
            where = (*path, key)
            lines += [] if path else [""]
            lines += self._comment(property_schema, where)
            if key in values:
                lines += self._given(property_schema, key, values[key], where)
            else:
                lines += self._default(property_schema, key, where)
        return lines

    def _comment(self, schema: Mapping[str, Any], where: Path, name: str = "") -> Lines:
        """Return what a key means, after its name if it is given, and its notes."""
        about = name + "; ".join(filter(None, (schema.get("description", ""), self._limits(schema))))
        width = WIDTH - len(where) * len(INDENT)
        return [line for text in (about, *self._notes.get(where, ())) for line in comment(text, width)]

    def _given(self, schema: Mapping[str, Any], key: str, value: Any, where: Path) -> Lines:
        nested = self._object(schema)
        if isinstance(value, Mapping) and nested is not None:
            return [f"{key}:", *_indented(self.mapping(nested, value, where))]
        item = self._object(schema.get("items", {}))
        of_mappings = isinstance(value, list) and value and all(isinstance(entry, Mapping) for entry in value)
        if item is not None and of_mappings:
            lines = [f"{key}:"]
            for index, entry in enumerate(value):
                lines += _indented(self._item(item, entry, (*where, index), is_last=index == len(value) - 1))
            return lines
        return [f"{key}: {flow(value)}"]

    def _item(
        self, schema: Mapping[str, Any], values: Mapping[str, Any], where: Path, is_last: bool
    ) -> Lines:
        """Return one item of a list. The last item also has the keys that are not given."""
        properties = schema["properties"]
        is_single = is_last and where[-1] == 0
        lines: Lines = []
        for key, value in values.items():
            path = (*where, key)
            lines += self._comment(properties[key] if is_single else {}, path)
            lines += self._given(properties[key], key, value, path)
        if is_last:
            others = {key: entry for key, entry in properties.items() if key not in values}
            lines += self.mapping({"properties": others}, {}, where)
        first = next(index for index, line in enumerate(lines) if not line.startswith("#"))
        rest = _indented(lines[first + 1 :])
        return [*self._comment({}, where), *lines[:first], f"- {lines[first]}", *rest]

    def _default(self, schema: Mapping[str, Any], key: str, where: Path) -> Lines:
        default = self._shown_defaults.get(where, schema.get("default"))
        nested = self._object(schema)
        if isinstance(default, Mapping) and nested is not None:
            every = {name: entry.get("default") for name, entry in nested["properties"].items()}
            return [f"#{line}" for line in self._given(schema, key, every | dict(default), where)]
        lines = []
        for name, entry in nested["properties"].items() if nested is not None else ():
            lines += self._comment(entry, (*where[:-1], ""), f"{name}: ")
        return [*lines, f"#{key}: {flow(default)}"]

    def _object(self, schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the schema of the object that a value may be; None if it may not be an object with known keys."""
        for part in (schema, *schema.get("anyOf", ()), *schema.get("allOf", ())):
            resolved = self._resolved(part)
            if "properties" in resolved:
                return resolved
        return None

    def _resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        reference = schema.get("$ref", "")
        return self._definitions[reference.rpartition("/")[2]] if reference else schema

    def _limits(self, schema: Mapping[str, Any]) -> str:
        """Return the limits of a number, or the possible values; empty if there are none."""
        for part in self._alternatives(schema):
            if "enum" in part:
                return "one of " + ", ".join(map(str, part["enum"]))
            if "minimum" in part and "maximum" in part:
                return f"{part['minimum']:.15g} to {part['maximum']:.15g}"
            if any(key in part for key in _LIMITS):
                return ", ".join(
                    f"{phrase} {part[key]:.15g}" for key, phrase in _LIMITS.items() if key in part
                )
        return ""

    def _alternatives(self, schema: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
        """Return the schema, and those of its items and alternatives, but not those of nested objects."""
        resolved = self._resolved(schema)
        yield resolved
        for part in (*resolved.get("anyOf", ()), *filter(None, [resolved.get("items")])):
            if "properties" not in self._resolved(part):
                yield from self._alternatives(part)


def _indented(lines: Iterable[str]) -> Lines:
    return [f"{INDENT}{line}" for line in lines]
