"""Evaluate `--fail-if`, a condition on the columns of a result, for use in continuous integration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from k8sdds.system.errors import ConditionMet, InputError


def fail_if(rows: Sequence[dict[str, Any]], condition: str) -> None:
    """Raise ConditionMet if a row meets the condition, a pandas `query` expression on the columns."""
    import pandas as pd

    table = pd.DataFrame(list(rows))
    columns = ", ".join(table.columns)
    remedy = f"such as: worse and change_percent < -5; columns: {columns}"
    # `@name` would access the variables of this function, and `__name` the internals of Python objects.
    if "@" in condition or "__" in condition or not condition.strip():
        raise InputError(f"--fail-if {condition!r}: not a condition on columns", remedy)
    try:
        met = table.eval(condition, engine="python")
    except Exception as error:  # the parser of pandas raises many types
        raise InputError(f"--fail-if {condition!r}: {error}", remedy) from error
    # A column of Booleans that contains nulls has the type object, so each value is checked.
    if not isinstance(met, pd.Series) or not met.dropna().map(lambda value: isinstance(value, bool)).all():
        raise InputError(f"--fail-if {condition!r}: the result is not true or false for each row", remedy)
    count = sum(value is True for value in met.astype(object))
    if count:
        raise ConditionMet(f"{count} of {len(table)} rows meet --fail-if {condition!r}")
