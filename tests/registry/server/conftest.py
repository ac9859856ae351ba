"""A registry with two models, and a server over it."""

from collections.abc import Callable, Iterator

import pytest
from support.servers.regserve import Site, running

from onnxreg.registry import Registry
from onnxreg.schema.manifest.draft import Draft

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
