"""`--fail-if`: a condition on the columns of a result, for use in the CI of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from k8sdds.system.errors import ConditionMet, InputError


def fail_if(rows: Sequence[dict[str, Any]], condition: str) -> None:
    """Raise ConditionMet where any row meets the condition, an expression of pandas' `query` on the columns.

    InputError where it is no such expression, or says nothing true or false of a row.
    """
    import pandas as pd

    table = pd.DataFrame(list(rows))
    columns = ", ".join(table.columns)
    remedy = f"such as: worse and change_percent < -5; columns: {columns}"
    # `@name` would reach into this function, and names with two underscores into Python itself.
    if "@" in condition or "__" in condition or not condition.strip():
        raise InputError(f"--fail-if {condition!r}: not a condition on columns", remedy)
    try:
        met = table.eval(condition, engine="python")
    except Exception as error:  # pandas raises whatever its parser meets
        raise InputError(f"--fail-if {condition!r}: {error}", remedy) from error
    # All of a boolean column is true or false; with nulls among them it is objects.
    if not isinstance(met, pd.Series) or not met.dropna().map(lambda one: isinstance(one, bool)).all():
        raise InputError(f"--fail-if {condition!r}: says nothing true or false of a row", remedy)
    count = sum(one is True for one in met.astype(object))
    if count:
        raise ConditionMet(f"{count} of {len(table)} rows meet --fail-if {condition!r}")
