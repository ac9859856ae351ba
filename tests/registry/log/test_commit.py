"""A write to the log of a model: what it leaves if it fails."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from onnxreg.registry.log.commit import announced
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.layout import Kind
from onnxreg.registry.store.protocol import Push
from onnxreg.schema.core.errors import RemoteError


class ClosedStore(DirectoryRegistry):
    """A store that takes a note, and no longer removes it."""

    def remove_note(self, kind: Kind, note: str) -> None:
        raise RemoteError(f"deleting gc/{kind}/{note} failed: no access")


@pytest.fixture
def closed(tmp_path: Path) -> ClosedStore:
    return ClosedStore(DirectoryRegistry.create(tmp_path / "home").root)


@pytest.fixture
def push(closed: ClosedStore) -> Iterator[Push]:
    with closed.push() as push:
        yield push


def test_an_error_is_not_hidden_by_that_of_taking_the_intent_back(closed: ClosedStore, push: Push) -> None:
    with pytest.raises(RemoteError, match="writing the blob failed"), announced(closed, push, "acme/pii"):
        raise RemoteError("writing the blob failed")


def test_a_write_that_succeeds_reports_that_its_intent_stays(closed: ClosedStore, push: Push) -> None:
    with (
        pytest.raises(RemoteError, match=r"deleting gc/intents/.* failed"),
        announced(closed, push, "acme/pii"),
    ):
        pass
