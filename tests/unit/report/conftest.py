"""Draw figures in less time."""

from __future__ import annotations

from contextvars import ContextVar

import pytest

from k8sdds.report.figures import canvas, details, levels, outages, over_time


@pytest.fixture(autouse=True)
def without_pdf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write no PDF of figures that a test draws itself. Reports write it only if requested."""
    monkeypatch.setattr(canvas, "AS_PDF", ContextVar("without", default=False))


@pytest.fixture
def full_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw figures with as many dots as for users."""
    monkeypatch.setattr(canvas, "DPI", 200)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write no files of figures, for tests of what they show and of their texts."""
    for module in (details, levels, outages, over_time):
        monkeypatch.setattr(module, "save", lambda *args: canvas.Figure(*args[2:], svg=""))
