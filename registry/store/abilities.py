"""Optional abilities of stores and streams: callers test for the ability, never for a class."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from onnxreg.registry.store.protocol import BlobReader, IndexFile, RegistryReader
from onnxreg.registry.support.disk import Disk
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.ref import Version

if TYPE_CHECKING:
    from onnxreg.registry.store.protocol import StoredObject
    from onnxreg.schema.core.progress import Advance

Carried = Mapping[str, frozenset[Version]]
"""The versions, by model, whose files an archive has."""


@runtime_checkable
class LocalStore(Protocol):
    """A registry in a directory of this machine, with files of its own in `local/`, which are never published."""

    root: Path
    disk: Disk

    def blob_path(self, digest: Digest) -> Path:
        """The file of a blob."""
        ...

    def read_local(self, name: str) -> bytes | None:
        """Read a small file below `local/`; None if there is none."""
        ...

    def write_local(self, name: str, data: bytes) -> None:
        """Replace a small file below `local/`, atomically and durably."""
        ...

    def remove_local(self, name: str) -> None:
        """Remove a file below `local/`; nothing happens if it is absent."""
        ...


@runtime_checkable
class LocalPush(Protocol):
    """A push into a directory of this machine."""

    @property
    def directory(self) -> Path:
        """The place of its unfinished files."""
        ...

    def local_file(self, digest: Digest) -> Path | None:
        """The file of a blob that is in the registry, or was put before; None if it is not there."""
        ...


@runtime_checkable
class LocatedReader(Protocol):
    """A registry whose URL does not say enough about where it is."""

    @property
    def location(self) -> str:
        """The identity of the place: another registry that is put there may have another location."""
        ...


@runtime_checkable
class PartialReader(Protocol):
    """A registry that has the files of some versions only."""

    carried: Carried


@runtime_checkable
class RefreshableReader(Protocol):
    """A store whose `read_index` may be stale: there are caches in between, or it reads at a pinned commit."""

    def read_fresh(self, name: str) -> IndexFile | None:
        """Read a model's index file as it is now, past caches and pins."""
        ...


@runtime_checkable
class IndexLister(Protocol):
    """A store whose listing says which index files changed."""

    def index_tokens(self) -> dict[str, str]:
        """A token of each model's index file that changes with the file; "" if the store knows none."""
        ...

    def is_token_of(self, token: str, data: bytes) -> bool:
        """True if a token says that the index file has these bytes; False also if it says nothing."""
        ...


@runtime_checkable
class PathReader(Protocol):
    """A registry whose small files can be read by path: the witness log, the snapshot."""

    def read_file(self, path: str, cached: "StoredObject | None" = None) -> "StoredObject | None":
        """A small file of the tree, and the token for its next swap; None if it is absent.

        `cached` is an earlier result, which may be returned again if the file has not changed; it may be a token
        without the bytes. At a store with caches in between, or that reads at a pinned commit, `cached` None means:
        as it is now.
        """
        ...


@runtime_checkable
class PathStore(PathReader, Protocol):
    """A registry whose small files can be written by path."""

    def write_files(self, files: Mapping[str, bytes]) -> None:
        """Write files whose content somebody has decided: they are created, or replaced if they differ.

        When this returns, all of it survives a power cut.
        """
        ...

    def swap_file(self, path: str, data: bytes, expected: str | None) -> bool:
        """Replace a file if its token is the expected one (None: absent), durably; False if it is not."""
        ...


@runtime_checkable
class BlockStream(Protocol):
    """A stream that hands out its own memory."""

    def take(self, limit: int) -> memoryview:
        """The next bytes, at most `limit`, without a copy: valid until the next call. Empty at the end."""
        ...


@runtime_checkable
class BufferReader(Protocol):
    """A stream that reads into a buffer, as `io.RawIOBase` does."""

    def readinto(self, buffer: Any, /) -> int: ...


@runtime_checkable
class ReportingStream(Protocol):
    """A stream that reports the bytes read from it."""

    def hand_over(self) -> "Advance":
        """Return the callback that counts moved bytes, to a caller that knows better when they moved; reads no longer
        count."""
        ...


def local_file(reader: BlobReader, digest: Digest) -> Path | None:
    """The file of a blob on this machine; None if it is elsewhere."""
    return reader.blob_path(digest) if isinstance(reader, LocalStore) else None


def location(reader: RegistryReader) -> str:
    """The place of a registry, as specific as it can tell."""
    return reader.location if isinstance(reader, LocatedReader) else reader.url


def carried_by(reader: RegistryReader) -> Carried | None:
    """The versions whose files a reader has; None if it has them all."""
    return reader.carried if isinstance(reader, PartialReader) else None
