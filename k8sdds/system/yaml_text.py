"""YAML text to validated data, with errors that name file, line, key and remedy."""

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


def parse(text: str, model: type[Model], source: str) -> Model:
    """The `model` that a YAML text describes. `source` is the file's name for messages.

    Raises InputError with all mistakes of the text, each with its line.
    """
    see = f"see: {model.page}" if model.page else ""
    data = load(text, source)
    if not isinstance(data, dict):
        raise InputError(f"{source}:1: this is not a mapping of keys to values", see)
    try:
        return model.model_validate(plain(data))
    except ValidationError as error:
        raise InputError("\n".join(explain(error, data, model, source)), see) from error


def load(text: str, source: str) -> Any:
    """The YAML text as ruamel's data, which remembers lines."""
    try:
        return YAML(typ="rt").load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{source}:{mark.line + 1}" if mark else source
        raise InputError(f"{where}: not valid YAML: {error.problem or error.context}") from error
    except YAMLError as error:
        raise InputError(f"{source}: not valid YAML: {error}") from error


def load_all(text: str) -> list[Any]:
    """All documents of a YAML text that ships with k8sdds, as plain data."""
    return list(YAML(typ="safe", pure=True).load_all(text))


def lines_of(text: str, key: str) -> list[int]:
    """The line of each item of the list at this top key, from 1. The text has been parsed before."""
    items = YAML(typ="rt").load(text)[key]
    return [items.lc.item(i)[0] + 1 for i in range(len(items))]


def dump(data: Any) -> str:
    """Plain data as YAML text in the given order of keys."""
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False
    yaml.width = 110
    out = StringIO()
    yaml.dump(data, out)
    return out.getvalue()


def plain(data: Any) -> Any:
    """ruamel's data without its memory of lines."""
    if isinstance(data, dict):
        return {str(key): plain(value) for key, value in data.items()}
    if isinstance(data, list):
        return [plain(value) for value in data]
    for kind in (bool, int, float, str):
        # ruamel's own kinds of numbers and strings remember how they were written.
        if isinstance(data, kind):
            return kind(data)
    return data


def explain(error: ValidationError, data: Any, model: type[BaseModel], source: str) -> list[str]:
    """pydantic's complaints as lines `FILE:LINE: KEY: what is wrong`, with the nearest valid key."""
    lines = []
    seen = set()
    for item in error.errors():
        path = _keys(item)
        key = ".".join(str(part) for part in path) or "(the whole file)"
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            message = "unknown key" + nearest(str(path[-1]), _keys_at(model, path[:-1]))
        elif item["type"] == "missing":
            message = "this key is missing"
        line = f"{source}:{_line_of(data, path)}: {key}: {message}"
        if line not in seen:
            seen.add(line)
            lines.append(line)
    return lines


def nearest(word: str, known: list[str]) -> str:
    """` (did you mean X?)`, or what is known if nothing is near."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if close:
        return f" (did you mean {close[0]!r}?)"
    return f" (known: {', '.join(known)})" if known else ""


def _keys(item: Any) -> list[int | str]:
    """The keys to a mistake, without the types of unions that pydantic puts between them."""
    *above, last = item["loc"] or ("",)
    unknown = item["type"] == "extra_forbidden"  # then the last part is what the user wrote, whatever it is
    path = [part for part in above if not _is_union_branch(part)]
    return [*path, last] if last != "" and (unknown or not _is_union_branch(last)) else path


def _is_union_branch(part: int | str) -> bool:
    # Such as 'list[int]', 'function-before[…]' or 'literal[…]': no key of ours looks like these.
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
        found = _model_in(argument)
        if found:
            return found
    return None
