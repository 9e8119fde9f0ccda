"""Parse and validate YAML text within limits, with errors that name the file, line and key."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.composer import Composer, ComposerError
from ruamel.yaml.constructor import ConstructorError, RoundTripConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.representer import SafeRepresenter
from typing_extensions import override

from k8sdds.system.errors import InputError
from k8sdds.system.reading import MAX_DEPTH, UnreadableError, printable, unprintable
from k8sdds.system.strict import Strict, explain

MAX_CHARACTERS = 256 * 1024
"""Longest text. A profile of 200 nodes has 40,000 characters."""
MAX_BYTES = 4 * MAX_CHARACTERS
MAX_VALUES = 20_000
"""Most values of a text, with aliases (`*name`) counted as what they stand for."""
MAX_DIGITS = 100
"""Longest number."""
MAX_MISTAKES = 20
"""Most mistakes that a message lists."""
MAX_UNKNOWN = 3
"""Most unknown top-level keys that are explained one by one; a file with more is probably of another kind."""
UNKNOWN_KEY = "unknown key"

Model = TypeVar("Model", bound=Strict)


def parse(text: str, model: type[Model], source: str, context: dict[str, Any] | None = None) -> Model:
    """Parse YAML text into an instance of `model`, whose validators receive the context."""
    see = f"see: k8sdds docs {model.page}" if model.page else ""
    data = load(text, source)
    if not isinstance(data, dict):
        raise InputError(f"{source}:1: expected a mapping of keys to values", see)
    if data.get("kind") == "Config" and "apiVersion" in data:
        raise InputError(
            f"{source} is a kubeconfig", f"select its cluster: k8sdds testbed cluster --kubeconfig {source}"
        )
    try:
        parsed: Model = model.model_validate(plain(data), context=context)
        return parsed
    except ValidationError as error:
        found = mistakes(error, data, model)
        unknown = [m.key for m in found if len(m.keys) == 1 and m.message.startswith(UNKNOWN_KEY)]
        lines = list(dict.fromkeys(f"{source}:{m.line}: {m.key}: {m.message}" for m in found))
        if len(unknown) > MAX_UNKNOWN:
            lines = [
                f"{source}: unknown keys: {', '.join(unknown[:MAX_MISTAKES])}; is it another kind of file?"
            ]
        if len(lines) > MAX_MISTAKES:
            lines[MAX_MISTAKES:] = [f"{source}: and {len(lines) - MAX_MISTAKES} more"]
        raise InputError("\n".join(lines), see) from error


@functools.lru_cache(maxsize=128)
def load(text: str, source: str) -> Any:
    """Parse YAML text into ruamel's data types, which keep line numbers. Raises UnreadableError.

    Callers must not change the data: the last texts are remembered, because a file is parsed and its keys are then
    looked up by line.
    """
    if len(text) > MAX_CHARACTERS:
        raise UnreadableError(f"{source} is longer than {MAX_CHARACTERS:,} characters")
    yaml = YAML(typ="rt")
    yaml.Composer, yaml.Constructor = _LimitedComposer, _CheckedConstructor
    try:
        return yaml.load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{source}:{mark.line + 1}" if mark else source
        reason = printable(str(error.problem or error.context))
        raise UnreadableError(f"{where}: not valid YAML: {reason}") from error
    except YAMLError as error:
        reason = " ".join(printable(str(error)).split())
        raise UnreadableError(f"{source}: not valid YAML: {reason}") from error
    except _LIBRARY_ERRORS as error:
        raise UnreadableError(f"{source}: not valid YAML: {printable(repr(error))[:200]}") from error


_LIBRARY_ERRORS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, NotImplementedError, RecursionError,
    TypeError, ValueError,
)  # fmt: skip
"""What ruamel raises for some values that are not valid, such as `!!float x`."""


class _LimitedComposer(Composer):
    """Composes a document, and refuses deep nesting and aliases that expand to many values."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.warn_double_anchors = False
        self._depth = 0
        self._values = 0
        self._sizes: dict[int, int] = {}
        """Number of values in each node that is composed, by the node's identity."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Compose the next node."""
        event = self.parser.peek_event()
        before = self._values
        self._depth += 1
        self._require(self._depth <= MAX_DEPTH, f"nested more than {MAX_DEPTH} levels deep", event)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if isinstance(event, AliasEvent):
            self._require(id(node) in self._sizes, f"the alias {event.anchor!r} contains itself", event)
            self._values += self._sizes[id(node)]
        else:
            self._values += 1
            self._sizes[id(node)] = self._values - before
            number = isinstance(node, ScalarNode) and str(node.tag).endswith((":int", ":float"))
            self._require(not number or len(node.value) <= MAX_DIGITS, "the number is too long", event)
        self._require(self._values <= MAX_VALUES, f"more than {MAX_VALUES:,} values", event)
        return node

    def _require(self, condition: bool, otherwise: str, event: Any) -> None:
        if not condition:
            raise ComposerError(None, None, otherwise, event.start_mark)


class _CheckedConstructor(RoundTripConstructor):
    """Constructs values, and names the line of a value that is not valid or cannot be printed."""

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        """Construct the value of a node."""
        try:
            if isinstance(node, ScalarNode):
                node.value = _without_surrogate_pairs(node.value)
                # ruamel marks the folds of a folded text with U+0007.
                text = node.value.replace("\a", "") if node.style == ">" else node.value
                if character := unprintable(text.replace("\r", "")):
                    raise ValueError(f"the text contains the control character {character}")
            return super().construct_object(node, deep=deep)
        except _LIBRARY_ERRORS as error:
            reason = str(error)[:200] if isinstance(error, ValueError) else f"not a value of {node.tag}"
            raise ConstructorError(None, None, reason, node.start_mark) from error


def _without_surrogate_pairs(text: str) -> str:
    """Return text in which two escapes of one character, as in JSON, are that character."""
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        return text


def load_all(text: str) -> list[Any]:
    """Parse all documents of a YAML text that is installed with k8sdds into plain data."""
    return list(YAML(typ="safe", pure=True).load_all(text))


def lines_of(text: str, key: str) -> list[int]:
    """Return the line number of each item of the list at this top-level key of a valid text."""
    items = load(text, key)[key]
    return [items.lc.item(i)[0] + 1 for i in range(len(items))]


def top_keys(text: str) -> set[str]:
    """Return the top-level keys of YAML text, without parsing it."""
    return set(re.findall(r"^(\w+):", text, re.MULTILINE))


class _Blocks(SafeRepresenter):
    """Writes text of several lines as a block, and values that occur several times in full, without anchors."""

    @override
    def ignore_aliases(self, data: Any) -> bool:
        return True

    @override
    def represent_str(self, data: Any) -> Any:
        style = "|" if "\n" in data else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Blocks.add_representer(str, _Blocks.represent_str)


def dump(data: Any) -> str:
    """Format plain data as YAML text and keep the order of keys."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Representer = _Blocks
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.width = 110
    out = StringIO()
    yaml.dump(data, out)
    return out.getvalue()


def plain(data: Any) -> Any:
    """Convert ruamel's data types to plain Python types."""
    if isinstance(data, dict):
        return {str(key): plain(value) for key, value in data.items()}
    if isinstance(data, list):
        return [plain(value) for value in data]
    for kind in (bool, int, float, str):
        # ruamel's subclasses of numbers and strings keep the original notation.
        if isinstance(data, kind):
            return kind(data)
    return data


@dataclass(frozen=True)
class Mistake:
    """A mistake in data that a user wrote."""

    keys: tuple[int | str, ...]
    """The keys and list positions that lead to it, as the user wrote them."""
    key: str
    """The same as text, such as `sweeps[1].payload_bytes`."""
    line: int
    message: str


def mistakes(error: ValidationError, data: Any, model: type[BaseModel]) -> list[Mistake]:
    """Return the mistakes in data, which comes from `load` if lines are of interest. Suggests similar keys."""
    found: dict[Mistake, None] = {}
    for item in error.errors():
        message = explain(item)
        missing = item["loc"][-1] if item["type"] == "missing" else None
        keys, key, line = _locate(data, item["loc"], missing)
        if item["type"] == "extra_forbidden":
            message = UNKNOWN_KEY + nearest(str(keys[-1]), _keys_at(model, keys[:-1]))
        elif item["type"] == "model_type":
            message += nearest("", _keys_at(model, keys))
        found[Mistake(keys, key, line, message)] = None
    return list(found)


MAX_LISTED = 30
"""Largest number of names that a message lists."""


def nearest(word: str, known: list[str]) -> str:
    """Return ` (did you mean X?)`; if no name is similar, the list of known names, unless it is long."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if close:
        return f" (did you mean {close[0]!r}?)"
    return f" (known: {', '.join(known)})" if 0 < len(known) <= MAX_LISTED else ""


def _locate(
    data: Any, path: tuple[int | str, ...], missing: int | str | None
) -> tuple[tuple[int | str, ...], str, int]:
    """Follow a path of pydantic's into the data, and return its keys, as a list and as text, and its line.

    Parts that the data does not have were inserted by the validation: a branch of a union, the position in
    the list that a single value was converted to, or the key that a name alone stands for.
    """
    keys: list[int | str] = []
    text: list[str] = []
    line = 1
    for part in path:
        if isinstance(data, dict):
            matching = [name for name in data if str(name) == str(part)]
            if not matching:
                continue
            name = matching[0]
            # Without a position: plain data, or a key that was merged from an anchor.
            line = _line(data, name, line)
            keys.append(str(name))
            text.append(str(name))
            data = data[name]
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            line = _line(data, part, line)
            keys.append(part)
            if len(data) > 1:
                text[-1] += f"[{part}]"
            elif len(keys) == 2 and isinstance(data[part], dict):
                # The only item of a top-level list, such as a single sweep, does not have to be named.
                text.pop()
            data = data[part]
    if missing is not None:
        keys.append(missing)
        text.append(str(missing))
    return tuple(keys), ".".join(text) or "(the whole file)", line


def _line(data: Any, position: Any, default: int) -> int:
    if not isinstance(data, CommentedMap | CommentedSeq):
        return default
    mark = (data.lc.data or {}).get(position)
    return mark[0] + 1 if mark else default


def _keys_at(model: type[BaseModel], path: Sequence[int | str]) -> list[str]:
    current: type[BaseModel] | None = model
    for part in (part for part in path if isinstance(part, str)):
        field = current.model_fields.get(part) if current else None
        current = _model_in(field.annotation) if field else None
    return list(current.model_fields) if current else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, getattr(annotation, "__args__", ()))), None)
