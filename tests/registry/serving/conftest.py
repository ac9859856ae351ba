"""A registry with two models, and a server over it."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "servers"))
from regserve import Site, running

from onnxreg.registry import Registry
from onnxreg.schema.draft import Draft

MakeDraft = Callable[..., Draft]


@pytest.fixture
def filled(registry: Registry, make_draft: MakeDraft) -> Registry:
    """`acme/pii` in two versions, `stable` being the first, and `tiny` in one."""
    registry.add(make_draft(), "0.1.0")
    registry.add(make_draft(seed="b"), "0.2.0")
    registry.tag("acme/pii:0.1.0", "stable")
    registry.add(make_draft("tiny", seed="c"), "1.0.0")
    return registry


@pytest.fixture
def site(filled: Registry) -> Iterator[Site]:
    with running(filled.store.root) as found:
        yield found
