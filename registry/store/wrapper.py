"""A place in front of another: caches, what is checked on the way, what is counted."""

from collections.abc import Iterable, Iterator
from typing import BinaryIO

from onnxreg.registry.store.protocol import IndexFile, RegistryReader
from onnxreg.schema.core.digest import Digest


class ReaderWrapper:
    """A registry to read from, in front of another: what it does not do in its own way, that one does."""

    def __init__(self, source: RegistryReader) -> None:
        self.source = source

    @property
    def url(self) -> str:
        return self.source.url

    @property
    def registry_id(self) -> str:
        return self.source.registry_id

    @property
    def is_mirror(self) -> bool:
        return self.source.is_mirror

    def names(self) -> Iterator[str]:
        return self.source.names()

    def read_index(self, name: str, known: IndexFile | None = None) -> IndexFile | None:
        return self.source.read_index(name, known)

    def has(self, digests: Iterable[Digest]) -> set[Digest]:
        return self.source.has(digests)

    def open_blob(self, digest: Digest, start: int = 0) -> BinaryIO:
        return self.source.open_blob(digest, start)

    def blob_url(self, digest: Digest) -> str:
        return self.source.blob_url(digest)


def layers(place: RegistryReader) -> Iterator[RegistryReader]:
    """A place, and each that is behind it."""
    yield place
    if isinstance(place, ReaderWrapper):
        yield from layers(place.source)


def innermost(place: RegistryReader) -> RegistryReader:
    """The registry that a place reads from, without what is wrapped around it."""
    return list(layers(place))[-1]
