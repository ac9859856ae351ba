"""A push to a repository on the Hub: one commit of everything."""

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd, CommitOperationCopy

from onnxreg.registry.store import streams
from onnxreg.registry.store.hub import hub_layout, repo_card
from onnxreg.registry.store.hub.commits import CommitHead, CommitSnapshot, Decide, is_file, token_of
from onnxreg.registry.store.hub.hub_client import HubUrl, Operation
from onnxreg.registry.store.hub.hub_layout import RepositoryLayout
from onnxreg.registry.store.layout import BlobKey, index_path, keys_of, usable_key
from onnxreg.registry.store.protocol import IncomingBlob, MissingBlobError, Push
from onnxreg.registry.store.staging import StagedBlobs
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError, LostRaceError
from onnxreg.schema.core.progress import Advance
from onnxreg.schema.core.ref import POLICY_LOG
from onnxreg.schema.formats.hub_layout import LayoutFile, card_metadata, loading
from onnxreg.schema.log.state import State
from onnxreg.schema.manifest.manifest import Manifest


class HubPush(StagedBlobs, Push):
    """Blobs wait in a directory of this machine; `publish` sends them and the index file as one commit."""

    last_step = "uploading and committing"

    def __init__(
        self, head: CommitHead, url: str, directory: Path, layout: RepositoryLayout | None = None
    ) -> None:
        super().__init__(directory, url)
        self._head = head
        self._layout = layout
        self._unsent: list[tuple[Advance, int]] = []
        self._relied: set[Digest] = set()
        self._condemned: frozenset[BlobKey] = frozenset()
        self._damaged: frozenset[str] = frozenset()

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

    def fetch(self, blob: IncomingBlob) -> int:
        """Stage a blob from another store; a file of this machine is sent in place. Its bytes count when they are sent."""
        with blob.open(0) as stream:
            advance = streams.hand_over(stream)
            if blob.path is None:
                size = self.put(stream, blob.digest)[1]
            else:
                actual, size = streams.pump(stream, None)
                streams.check(actual, blob.digest, f"blob {blob.digest}")
        with self._lock:
            self._unsent.append((advance, size))
            if blob.path is not None:
                self._staged[blob.digest] = blob.path
        return size

    def flush(self) -> None:
        self._transact(f"Restore {len(self._staged)} blobs", lambda at, doubt: self._additions(at) or None)

    def _transact(self, message: str, decide: Decide) -> None:
        self._head.transact(message, decide)
        for advance, size in self._unsent:
            advance(size)
        self._unsent = []

    def _additions(self, at: CommitSnapshot) -> list[Operation]:
        """The staged blobs that are not there. Damaged blobs do not count as present."""
        paths = {self._path(digest): digest for digest in self._staged}
        missing = sorted(paths.keys() - (at.blobs(paths) - self._damaged))
        return [self._addition(path, paths[path]) for path in missing]

    def _addition(self, path: str, digest: Digest) -> CommitOperationAdd:
        """A staged blob to be added, whose digest the client need not compute."""
        addition = CommitOperationAdd(path, str(self._staged[digest]))
        addition.upload_info.sha256 = bytes.fromhex(digest.hex)
        return addition

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
            current = hub_layout.chosen(at, name, self._layout)
            if current is not None:
                return self._with_layout(at, name, index, current)
        except (InputError, IntegrityError, MissingBlobError):
            if self._layout is not None:
                raise
        return self._card(at, repo_card.updated(self._text(at), name, index, self._url))

    def _with_layout(
        self, at: CommitSnapshot, name: str, index: bytes, current: RepositoryLayout
    ) -> list[Operation]:
        state = State.decode(index.partition(b"\n")[0])
        shown = None if current.is_governed(at) else current.shown(state)
        files: dict[str, LayoutFile] = {}
        metadata: Mapping[str, Any] = {}
        about: tuple[str | None, list[str]] = None, []
        if shown is not None:
            data = self._read(at, shown[1])
            manifest = Manifest.decode(data)
            files = hub_layout.files_of(state, shown[0], data, manifest)
            metadata = card_metadata(manifest, files)
            about = manifest.description, loading(HubUrl.parse(self._url).repo, manifest, files)
        card = repo_card.updated(self._text(at), name, index, self._url, *about)
        if card is not None and (metadata or current.card):
            card = repo_card.described(card, metadata, current.card)
        operations = hub_layout.update(at, current, files, metadata, partial(self._layout_operation, at))
        return [*operations, *self._card(at, card)]

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
        present = at.blobs(paths)
        source = next((path for path in paths if path in present), None)
        if source is None:
            raise MissingBlobError(file.digest, self._url)
        return CommitOperationCopy(source, file.path)

    def _text(self, at: CommitSnapshot) -> str | None:
        """The repository's card; None if there is none, or if it is not text."""
        try:
            return (at.read(repo_card.PATH) or b"").decode() or None
        except UnicodeDecodeError:
            return None

    def _card(self, at: CommitSnapshot, card: str | None) -> list[Operation]:
        """The change of the card, if there is one. A card that is not text is left alone."""
        current = at.read(repo_card.PATH)
        is_text = not current or self._text(at) is not None
        is_new = card is not None and card.encode() != current
        return [CommitOperationAdd(repo_card.PATH, str(card).encode())] if is_text and is_new else []
