"""Parse and validate YAML text, with errors that name the file, line and key."""

from __future__ import annotations

import difflib
from io import StringIO
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from k8sdds.system.errors import InputError
from k8sdds.system.strict import Strict

Model = TypeVar("Model", bound=Strict)


def parse(text: str, model: type[Model], source: str, context: dict[str, Any] | None = None) -> Model:
    """Parse YAML text into an instance of `model`.

    Args:
        text: The text.
        model: The model that the text must match.
        source: Name of the file, for messages.
        context: Passed to the validators of the model.

    Raises:
        InputError: The text is invalid; names every mistake with its line.
    """
    see = f"see: {model.page}" if model.page else ""
    data = load(text, source)
    if not isinstance(data, dict):
        raise InputError(f"{source}:1: expected a mapping of keys to values", see)
    try:
        parsed: Model = model.model_validate(plain(data), context=context)
        return parsed
    except ValidationError as error:
        raise InputError("\n".join(explain(error, data, model, source)), see) from error


def load(text: str, source: str) -> Any:
    """Parse YAML text into ruamel's data types, which keep line numbers. Raises InputError."""
    try:
        return YAML(typ="rt").load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{source}:{mark.line + 1}" if mark else source
        raise InputError(f"{where}: not valid YAML: {error.problem or error.context}") from error
    except YAMLError as error:
        raise InputError(f"{source}: not valid YAML: {error}") from error


def load_all(text: str) -> list[Any]:
    """Parse all documents of a YAML text that is installed with k8sdds into plain data."""
    return list(YAML(typ="safe", pure=True).load_all(text))


def lines_of(text: str, key: str) -> list[int]:
    """Return the line number of each item of the list at this top-level key of a valid text."""
    items = YAML(typ="rt").load(text)[key]
    return [items.lc.item(i)[0] + 1 for i in range(len(items))]


def dump(data: Any) -> str:
    """Format plain data as YAML text and keep the order of keys."""
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False
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


def explain(error: ValidationError, data: Any, model: type[BaseModel], source: str) -> list[str]:
    """Format validation errors as `FILE:LINE: KEY: MESSAGE`, and suggest keys in place of unknown ones."""
    lines: dict[str, None] = {}
    for item in error.errors():
        path = _keys(item)
        key = ".".join(str(part) for part in path) or "(the whole file)"
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            message = "unknown key" + nearest(str(path[-1]), _keys_at(model, path[:-1]))
        elif item["type"] == "missing":
            message = "this key is missing"
        lines[f"{source}:{_line_of(data, path)}: {key}: {message}"] = None
    return list(lines)


def nearest(word: str, known: list[str]) -> str:
    """Return ` (did you mean X?)`, or the list of known names if none is similar."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if close:
        return f" (did you mean {close[0]!r}?)"
    return f" (known: {', '.join(known)})" if known else ""


def _keys(item: Any) -> list[int | str]:
    """Return the keys that lead to an error, without the union branches that pydantic inserts."""
    *above, last = item["loc"] or ("",)
    # The last part of an unknown key is the user's text, which may look like a union branch.
    unknown = item["type"] == "extra_forbidden"
    path = [part for part in above if not _is_union_branch(part)]
    return [*path, last] if last != "" and (unknown or not _is_union_branch(last)) else path


def _is_union_branch(part: int | str) -> bool:
    # Such as 'list[int]', 'function-before[…]' or 'literal[…]'; valid keys contain no brackets or hyphens.
    return isinstance(part, str) and any(sign in part for sign in "[(-")


def _line_of(data: Any, path: list[int | str]) -> int:
    line = 1
    for part in path:
        if isinstance(data, CommentedMap) and part in data:
            line = data.lc.key(part)[0] + 1
            data = data[part]
        elif isinstance(data, CommentedSeq) and isinstance(part, int) and part < len(data):
            line = data.lc.item(part)[0] + 1
            data = data[part]
        else:
            break
    return line


def _keys_at(model: type[BaseModel], path: list[int | str]) -> list[str]:
    current: Any = model
    for part in path:
        if isinstance(part, int):
            continue
        field = current.model_fields.get(part) if isinstance(current, type) else None
        current = _model_in(field.annotation) if field else None
        if current is None:
            return []
    return list(current.model_fields) if current else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        model = _model_in(argument)
        if model:
            return model
    return None
