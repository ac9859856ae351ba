"""A registry in a repository on the Hugging Face Hub: `hf://ORG/NAME[@BRANCH]`.

**A push is one commit.** Its blobs, the index file and the repository's card go up together, upon one parent; the Hub
refuses the commit if that parent is no longer the head (412). So a push is seen whole or not at all.

**A transaction.** Everything is decided on one commit, the parent: that the index is the one that was read, that the
blobs which the push relies on are there, that no collector condemned them. If another commit came first, all of this is
looked at again on the new head, and the push goes on if it still holds: pushes of different models do not disturb each
other. Since every condemnation is a commit too, it is either before that parent, and the push sees it, or after the
push, and the collector reads the push's log after it. So no intent need be left for collectors (`docs/format.md`): notes
of that kind stay in this process.

**Reading** pins the commit that the first answer came from, so that two files never come from two commits. The pin
moves on with what this object writes, after a lost race, and when names or notes are listed.

Uploads go the way `hf` sends them: through Xet if hf_xet is installed, else (`HF_HUB_DISABLE_XET=1`) through LFS;
files are handed over as paths, since from streams huggingface_hub uploads through LFS alone. Reading is plain HTTP.

Tested with the real client against an emulator of the Hub (`tests/support/servers/hub.py`). Nothing here was ever compared with
the live Hub.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from huggingface_hub import CommitOperationAdd, CommitOperationDelete

from onnxreg.registry.store.directory.scratch import temporary
from onnxreg.registry.store.hub.commits import (
    IDENTITY,
    LAYOUT,
    PREFETCHED_PATHS,
    CommitHead,
    CommitSnapshot,
    is_file,
    token_of,
)
from onnxreg.registry.store.hub.hub_client import MAX_PATHS, HubClient, HubUrl, NoRepositoryError, Operation
from onnxreg.registry.store.hub.hub_layout import ATTRIBUTES, LFS, RepositoryLayout, attributes, chosen
from onnxreg.registry.store.hub.hub_push import HubPush
from onnxreg.registry.store.layout import (
    BlobKey,
    Kind,
    check_writer,
    index_path,
    keys_of,
    model_of,
    new_identity,
    note_path,
    other_registry,
    read_identity,
)
from onnxreg.registry.store.object_store import open_first
from onnxreg.registry.store.protocol import IndexFile, MissingBlobError, RegistryStore, StoredObject, TreeFile
from onnxreg.registry.support import environment
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, LostRaceError, NotFoundError

LFS_RULE = f"blobs/** {LFS}"
HUB_FILES = frozenset({ATTRIBUTES, LAYOUT, ".gitignore", "README.md", "LICENSE", "LICENSE.md", "LICENSE.txt"})
"""Files of a repository that do not belong to the registry."""


def open_hub(
    url: str, create: bool = False, mirror_of: str | None = None, known_id: str | None = None
) -> "HubRegistry":
    """The registry at a URL; `create` makes one, and its repository, if there is none."""
    hub = HubClient(HubUrl.parse(url))
    return HubRegistry.create(hub, mirror_of) if create else HubRegistry(hub, known_id)


class HubRegistry(RegistryStore):
    """The registry in a repository. `known_id` is its id if that is known; index files are checked against it."""

    def __init__(self, hub: HubClient, known_id: str | None = None) -> None:
        self.hub = hub
        self._known_id = known_id
        self._head = CommitHead(hub)
        self._intents: dict[str, bytes] = {}
        self._layout: RepositoryLayout | None = None

    @classmethod
    def create(cls, hub: HubClient, mirror_of: str | None = None) -> "HubRegistry":
        """Open the registry, or make an empty one, which may be a mirror of the registry with this id.

        A repository that has to be made is as private as `REG_HF_PRIVATE` (1 or 0) says, else as its owner set.
        InputError if the repository holds something else.
        """
        registry = cls(hub)
        try:
            registry._head.refresh()
        except NoRepositoryError:
            setting = (environment.read("REG_HF_PRIVATE") or "").lower()
            if setting not in ("", "0", "1", "false", "true"):
                raise InputError(
                    f"REG_HF_PRIVATE is {setting[:20]!r}",
                    "set it to 1 (private) or 0 (public), or not at all",
                ) from None
            hub.create(setting in ("1", "true") if setting else None)
        identity = new_identity(mirror_of, **({"mirror": True} if mirror_of else {}))

        def decide(at: CommitSnapshot, doubt: bool) -> list[Operation] | None:
            if at.read(IDENTITY) is not None:
                return None
            entries = hub.tree(at.revision, recursive=False)
            foreign_path = next((entry.path for entry in entries if entry.path not in HUB_FILES), None)
            if foreign_path is not None:
                raise InputError(
                    f"{hub.location.url} is not a registry and holds {foreign_path}",
                    "name a registry, or a repository that is empty or does not exist yet",
                )
            rules = (at.read(ATTRIBUTES) or b"").decode(errors="replace").splitlines()
            rules = [*(rule for rule in rules if rule != LFS_RULE), LFS_RULE, ""]
            return [
                CommitOperationAdd(ATTRIBUTES, "\n".join(rules).encode()),
                CommitOperationAdd(IDENTITY, identity),
            ]

        registry._head.transact("Create the registry", decide)
        return registry

    @property
    def url(self) -> str:
        return self.hub.location.url

    @property
    def registry_id(self) -> str:
        return self._known_id or str(self.identity()["id"])

    @property
    def is_mirror(self) -> bool:
        return self.identity().get("mirror") is True

    def identity(self) -> dict[str, Any]:
        """The content of `registry.json`. NotFoundError if there is no registry; IntegrityError if it is another."""
        data = self._head.now().read(IDENTITY)
        if data is None:
            raise NotFoundError(f"there is no registry in {self.url}", "check the URL, or push to make one")
        identity = read_identity(data, self.url)
        if self._known_id not in (None, identity["id"]):
            raise other_registry(self.url, identity["id"], str(self._known_id))
        return identity

    def blob_url(self, digest: Digest) -> str:
        return self.hub.file_url(BlobKey(digest).path, self._head.revision)

    def has(self, digests: Iterable[Digest]) -> set[Digest]:
        at = self._head.now()
        plain = {BlobKey(digest).path: digest for digest in digests}
        later_keys = {key.path: digest for digest in plain.values() for key in keys_of(digest)[1:]}
        at.entries([*plain, *later_keys][: max(len(plain), MAX_PATHS - len(PREFETCHED_PATHS))])
        present = {plain[path] for path in at.blobs(plain)}
        unread = {path: digest for path, digest in later_keys.items() if digest not in present}
        return present | {unread[path] for path in at.blobs(unread)}

    def open_blob(self, digest: Digest, start: int = 0) -> BinaryIO:
        at = self._head.now()

        def opened(path: str) -> BinaryIO | None:
            return None if at.is_absent(path) else self.hub.open(path, at.revision, start)

        return open_first(digest, self.url, opened, at.blobs)

    def open_key(self, key: BlobKey) -> BinaryIO:
        stream = self.hub.open(key.path, self._head.now().revision)
        if stream is None:
            raise MissingBlobError(key.digest, self.url)
        return stream

    def read_index(self, name: str, cached: IndexFile | None = None) -> IndexFile | None:
        data = self._head.read(index_path(name), cached.data if cached else None)
        return None if data is None else IndexFile(data, token_of(data))

    def read_fresh(self, name: str) -> IndexFile | None:
        """Read a model's index file at the newest commit, which is pinned from now on."""
        self._head.refresh()
        return self.read_index(name)

    def read_file(self, path: str, cached: StoredObject | None = None) -> StoredObject | None:
        if cached is None:
            self._head.refresh()
        elif cached[1] and not cached[0]:
            if is_file(self._head.now().entries([path]).get(path), cached[1]):
                return cached
            cached = None
        data = self._head.read(path, cached[0] if cached else None)
        return None if data is None else (data, token_of(data))

    def swap_file(self, path: str, data: bytes, expected: str | None) -> bool:
        check_writer(self.identity(), self.url)

        def decide(at: CommitSnapshot, doubt: bool) -> list[Operation] | None:
            entry = at.entries([path]).get(path)
            if doubt and is_file(entry, token_of(data)):
                return None
            if not is_file(entry, expected):
                raise LostRaceError(f"{path} changed meanwhile")
            return [CommitOperationAdd(path, data)]

        try:
            self._head.transact(f"Write {path}", decide)
        except LostRaceError:
            return False
        return True

    def names(self) -> Iterator[str]:
        return iter(sorted(self.index_tokens()))

    def index_tokens(self) -> dict[str, str]:
        entries = {model_of(entry.path): entry.oid for entry in self._head.refresh().tree("index")}
        return {name: oid for name, oid in entries.items() if name is not None}

    def is_token_of(self, token: str, data: bytes) -> bool:
        return token in token_of(data).split("-")

    def files(self) -> Iterator[TreeFile]:
        at = self._head.now()
        layout = RepositoryLayout.read(at)
        others = HUB_FILES | (layout.files.keys() if layout else set())
        return iter([TreeFile(entry.path, entry.size) for entry in at.tree() if entry.path not in others])

    def delete(self, keys: Iterable[BlobKey]) -> None:
        if paths := [key.path for key in keys]:
            self._remove(paths, f"Delete {len(paths)} unreferenced blobs")

    def discard(self, paths: Iterable[str]) -> None:
        doomed = list(paths)
        self._remove(doomed, f"Delete {' '.join(doomed)}")

    def _remove(self, paths: list[str], message: str) -> None:
        def decide(at: CommitSnapshot, doubt: bool) -> list[Operation] | None:
            return [CommitOperationDelete(path, is_folder=False) for path in at.entries(paths)] or None

        self._head.refresh()
        self._head.transact(message, decide)

    def add_note(self, kind: Kind, note: str, data: bytes) -> None:
        path = note_path(kind, note)

        def decide(at: CommitSnapshot, doubt: bool) -> list[Operation] | None:
            return None if at.entries([path]) else [CommitOperationAdd(path, data)]

        if kind == "intents":
            self._intents[note] = data
        else:
            self._head.transact(f"Leave {path}", decide)

    def notes(self, kind: Kind) -> dict[str, bytes]:
        return dict(self._intents) if kind == "intents" else self._head.refresh().notes(kind)

    def remove_note(self, kind: Kind, note: str) -> None:
        if kind == "intents":
            self._intents.pop(note, None)
        else:
            self._remove([note_path(kind, note)], f"Remove {note_path(kind, note)}")

    def is_alive(self, note: str) -> bool | None:
        return None

    def confirm(self, name: str) -> None:
        """A commit that can be read is durable."""

    @contextmanager
    def push(self) -> Iterator[HubPush]:
        check_writer(self.identity(), self.url)
        with temporary() as directory:
            yield HubPush(self._head, self.url, directory, self._layout)

    def choose_layout(self, name: str, channel: str | None) -> None:
        """From the next push on, keep the layout of a model beside the registry, of its newest release or a channel.

        InputError if the repository has the layout of another model.
        """
        self._layout = RepositoryLayout(name, channel)
        chosen(self._head.refresh(), name, self._layout)
        self._head.transact("Prepare the layout", lambda at, doubt: attributes(at) or None)

    def refresh_layout(self, name: str) -> None:
        """Bring the layout of a model up to date, if the last push did not."""
        index = self.read_fresh(name)
        if index is not None:
            with self.push() as push:
                push.refresh(name, index.data)
