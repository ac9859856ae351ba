"""The base of readers that wrap another reader to cache, check or count."""

from collections.abc import Iterable, Iterator
from typing import BinaryIO

from onnxreg.registry.store.protocol import IndexFile, RegistryReader
from onnxreg.schema.core.digest import Digest


class ReaderWrapper:
    """A registry reader that forwards every call to `source`; subclasses override some."""

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

    def read_index(self, name: str, cached: IndexFile | None = None) -> IndexFile | None:
        return self.source.read_index(name, cached)

    def has(self, digests: Iterable[Digest]) -> set[Digest]:
        return self.source.has(digests)

    def open_blob(self, digest: Digest, start: int = 0) -> BinaryIO:
        return self.source.open_blob(digest, start)

    def blob_url(self, digest: Digest) -> str:
        return self.source.blob_url(digest)


def layers(reader: RegistryReader) -> Iterator[RegistryReader]:
    """Yield a reader, then each reader that it wraps."""
    yield reader
    if isinstance(reader, ReaderWrapper):
        yield from layers(reader.source)


def innermost(reader: RegistryReader) -> RegistryReader:
    """Return the registry behind all wrappers of a reader."""
    return list(layers(reader))[-1]
