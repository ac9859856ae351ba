"""Catalogs of files that did not change for long."""

import pytest

from onnxreg.registry.search import catalog


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if what lies there had been there for long: a file's time of change cannot be set."""
    monkeypatch.setattr(catalog, "TICK_NANOSECONDS", 0)
