"""Catalogs of files that did not change for long."""

import pytest

from onnxreg.schema.core import files


@pytest.fixture
def settled(monkeypatch):
    """As if what lies there had been there for long: a file's time of change cannot be set."""
    monkeypatch.setattr(files, "SETTLED_NANOSECONDS", 0)
