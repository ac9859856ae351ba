"""A push to a repository on the Hub: one commit of everything."""

import secrets
import stat
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, cast

from huggingface_hub import CommitOperationAdd, CommitOperationCopy

from onnxreg.registry.store import streams
from onnxreg.registry.store.hub import hub_layout, repo_card
from onnxreg.registry.store.hub.commits import CommitHead, CommitSnapshot, Decide, is_file, token_of
from onnxreg.registry.store.hub.hub_client import HubUrl, Operation
from onnxreg.registry.store.hub.hub_layout import RepositoryLayout
from onnxreg.registry.store.layout import BlobKey, index_path, keys_of, usable_key
from onnxreg.registry.store.protocol import Hasher, IncomingBlob, MissingBlobError
from onnxreg.registry.store.streams import UnownedFile, hand_over
from onnxreg.registry.support.disk import host_errors
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError, LostRaceError
from onnxreg.schema.core.progress import Advance
from onnxreg.schema.core.ref import POLICY_LOG
from onnxreg.schema.formats.hub_layout import LayoutFile, card_metadata, loading
from onnxreg.schema.log.state import State

NO_METADATA: Mapping[str, Any] = MappingProxyType({})


class HubPush:
    """Blobs wait in a directory of this machine; `publish` sends them and the index file as one commit."""

    last_step = "uploading and committing"

    def __init__(
        self, head: CommitHead, url: str, directory: Path, layout: RepositoryLayout | None = None
    ) -> None:
        self.id = secrets.token_hex(8)
        self._layout = layout
        self._head = head
        self._url = url
        self._directory = directory
        self._staged: dict[Digest, Path] = {}
        self._meters: dict[Digest, UploadMeter] = {}
        self._relied: set[Digest] = set()
        self._condemned: frozenset[BlobKey] = frozenset()
        self._damaged: frozenset[str] = frozenset()
        self._lock = threading.Lock()

    def avoid(self, condemned: Collection[BlobKey]) -> None:
        self._condemned = frozenset(condemned)
        self._relied = set()

    def distrust(self, keys: Collection[BlobKey]) -> None:
        self._damaged = frozenset(key.path for key in keys)

    def _path(self, digest: Digest) -> str:
        return usable_key(digest, self._condemned).path

    def has(self, digests: Iterable[Digest]) -> set[Digest]:
        requested = set(digests)
        paths = {self._path(digest): digest for digest in requested - self._staged.keys()}
        present = {paths[path] for path in self._head.now().blobs(paths.keys() - self._damaged)}
        self._relied |= present
        return present | (requested & self._staged.keys())

    def put(self, source: BinaryIO, expected: Digest | None = None) -> tuple[Digest, int]:
        return self._put(source, expected)

    def _put(
        self, source: BinaryIO, expected: Digest | None = None, hasher: Hasher | None = None
    ) -> tuple[Digest, int]:
        temporary = self._directory / secrets.token_hex(8)
        try:
            with host_errors("writing a temporary file"), temporary.open("xb") as file:
                digest, size = streams.pump(source, file, hasher=hasher)
            if expected is not None:
                streams.check(digest, expected, f"blob {expected}")
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        self._keep(temporary, digest)
        return digest, size

    def fetch(self, blob: IncomingBlob) -> int:
        """Stage a blob from another store; a file of this machine is sent in place. Its bytes count only when they are sent."""
        path = blob.path
        with blob.open(0) as stream:
            meter = UploadMeter(blob.size, hand_over(stream))
            if path is None:
                size = self.put(stream, blob.digest)[1]
            else:
                actual, size = streams.pump(stream, None)
                streams.check(actual, blob.digest, f"blob {blob.digest}")
        with self._lock:
            self._meters[blob.digest] = meter
            if path is not None:
                self._staged[blob.digest] = path
        return size

    def put_file(self, path: Path, hasher: Hasher | None = None) -> tuple[Digest, int]:
        temporary = self._directory / secrets.token_hex(8)
        with host_errors(f"reading {path.name}"):
            status = path.lstat()
            if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and _move(path, temporary):
                with temporary.open("rb") as source:
                    digest, size = streams.pump(source, None, hasher=hasher)
                self._keep(temporary, digest)
                return digest, size
            with path.open("rb") as source:
                return self._put(source, hasher=hasher)

    def _keep(self, temporary: Path, digest: Digest) -> None:
        with self._lock, host_errors("writing a temporary file"):
            temporary.replace(self._directory / digest.hex)
            self._staged[digest] = self._directory / digest.hex

    def flush(self) -> None:
        self._transact(f"Restore {len(self._staged)} blobs", lambda at, doubt: self._additions(at) or None)

    def _transact(self, message: str, decide: Decide) -> None:
        self._head.transact(message, decide)
        for meter in self._meters.values():
            meter.end()

    def _additions(self, at: CommitSnapshot) -> list[Operation]:
        """The staged blobs that are not there, their digests known. Damaged blobs do not count as present."""
        paths = {self._path(digest): digest for digest in self._staged}
        missing = sorted(paths.keys() - (at.blobs(paths) - self._damaged))
        return [self._addition(path, paths[path]) for path in missing]

    def _addition(self, path: str, digest: Digest) -> "MeteredAddition":
        return MeteredAddition(path, str(self._staged[digest]), digest, self._meters.get(digest))

    def publish(self, name: str, index: bytes, expected: str | None) -> None:
        path = index_path(name)

        def decide(at: CommitSnapshot, doubt: bool) -> list[Operation] | None:
            relied = {self._path(digest) for digest in self._relied - self._staged.keys()}
            staged = {self._path(digest) for digest in self._staged}
            entries = at.entries([path, *sorted(relied | staged)])
            if doubt and is_file(entries.get(path), token_of(index)):
                return None
            if not is_file(entries.get(path), expected):
                raise LostRaceError(f"the index of {name} changed meanwhile")
            if not relied <= at.blobs(relied) or at.condemned() & (relied | staged):
                raise LostRaceError(f"a collector came between the push of {name} and its blobs")
            shown = [] if name == POLICY_LOG else self._presentation(at, name, index)
            return [*self._additions(at), CommitOperationAdd(path, index), *shown]

        self._transact(f"Publish {name}", decide)

    def refresh(self, name: str, index: bytes) -> None:
        """Bring the card and the layout of a model up to date, if they are not."""
        self._transact(f"Show {name}", lambda at, doubt: self._presentation(at, name, index) or None)

    def _presentation(self, at: CommitSnapshot, name: str, index: bytes) -> list[Operation]:
        """The changes to what visitors see: the card and, if the repository has one, the layout of the model.

        A layout that cannot be written stops only a push that asks for it: yanks must reach the log.
        """
        try:
            return self._with_layout(at, name, index)
        except (InputError, IntegrityError, MissingBlobError):
            if self._layout is not None:
                raise
            return self._card(at, name, index)

    def _with_layout(self, at: CommitSnapshot, name: str, index: bytes) -> list[Operation]:
        current = hub_layout.chosen(at, name, self._layout)
        if current is None:
            return self._card(at, name, index)
        state = State.decode(index.partition(b"\n")[0])
        read = partial(self._read, at)
        governed = hub_layout.is_governed(at, current)
        manifest = None if governed else current.manifest_in(state, read)
        files = current.files_in(state, manifest, read)
        metadata = {} if manifest is None else card_metadata(manifest, files)
        description = None if manifest is None else manifest.description
        lines = [] if manifest is None else loading(HubUrl.parse(self._url).repo, manifest, files)
        return [
            *hub_layout.update(at, current, files, metadata, partial(self._layout_operation, at)),
            *self._card(at, name, index, metadata, current.card, description, lines),
        ]

    def _read(self, at: CommitSnapshot, digest: Digest) -> bytes:
        """A small blob: staged, or in the repository."""
        if digest in self._staged:
            return self._staged[digest].read_bytes()
        data = next(filter(None, (at.read(key.path) for key in keys_of(digest))), None)
        if data is None:
            raise MissingBlobError(digest, self._url)
        streams.check(Digest.of(data), digest, f"blob {digest}")
        return data

    def _layout_operation(self, at: CommitSnapshot, file: LayoutFile) -> Operation:
        """A second path of a blob; its bytes are not sent again."""
        if file.digest in self._staged:
            return self._addition(file.path, file.digest)
        paths = [key.path for key in keys_of(file.digest)]
        source = next((path for path in paths if path in at.blobs(paths)), None)
        if source is None:
            raise MissingBlobError(file.digest, self._url)
        return CommitOperationCopy(source, file.path)

    def _card(
        self,
        at: CommitSnapshot,
        name: str,
        index: bytes,
        metadata: Mapping[str, Any] = NO_METADATA,
        written: Mapping[str, Any] = NO_METADATA,
        description: str | None = None,
        lines: Sequence[str] = (),
    ) -> list[Operation]:
        """The repository's card, if this push changes it. A card that is not text is left alone."""
        try:
            card = (at.read(repo_card.PATH) or b"").decode()
        except UnicodeDecodeError:
            return []
        new = repo_card.updated(card or None, name, index, self._url, description, lines)
        if new is not None and (metadata or written):
            new = repo_card.described(new, metadata, written)
        return [] if new in (None, card) else [CommitOperationAdd(repo_card.PATH, str(new).encode())]


def _move(source: Path, target: Path) -> bool:
    """Move a file without a copy; False if that is not possible, as across file systems."""
    try:
        source.rename(target)
    except OSError:
        return False
    return True


class UploadMeter:
    """Counts the bytes of a blob that were sent and reports them; going back subtracts them."""

    def __init__(self, size: int, advance: Advance) -> None:
        self._size = size
        self._advance = advance
        self._reached = 0

    def reach(self, position: int) -> None:
        """So many of its bytes are sent."""
        self._advance(position - self._reached)
        self._reached = position

    def end(self) -> None:
        """Count the blob as sent in full: the client reports no more within a commit, or through Xet."""
        self.reach(self._size)


class MeteredAddition(CommitOperationAdd):
    """A blob to be added from a file of this machine, whose digest is known."""

    def __init__(self, path: str, file: str, digest: Digest, meter: UploadMeter | None) -> None:
        super().__init__(path, file)
        self.upload_info.sha256 = bytes.fromhex(digest.hex)
        self._meter = meter

    @contextmanager
    def as_file(self, with_tqdm: bool = False) -> Iterator[BinaryIO]:
        """The file object that the client reads. If the client asks for its own progress bar, it is sending."""
        with super().as_file() as file:
            metered = with_tqdm and self._meter is not None
            yield cast(BinaryIO, _Sending(file, cast(UploadMeter, self._meter))) if metered else file


class _Sending(UnownedFile):
    """A file that reports how far it was read. Closing it leaves the file open."""

    def __init__(self, file: BinaryIO, meter: UploadMeter) -> None:
        super().__init__(file)
        self._meter = meter

    def read(self, size: int = -1, /) -> bytes:
        data = self._file.read(size)
        self._meter.reach(self._file.tell())
        return data
