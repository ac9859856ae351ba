"""A registry in a repository on the Hugging Face Hub: `hf://ORG/NAME[@BRANCH]`.

**A push is one commit.** Its blobs, the index file and the repository's card go up together, upon one parent; the Hub
refuses the commit if that parent is no longer the head (412). So a push is seen whole or not at all.

**A transaction.** Everything is decided on one commit, the parent: that the index is the one that was read, that the
blobs which the push relies on are there, that no collector condemned them. If another commit came first, all of this is
looked at again on the new head. Since every condemnation is a commit too, it is either before that parent, and the push
sees it, or after the push, and the collector reads the push's log after it. So intents (`docs/format.md`) stay in this
process.

**Reading** pins the commit that the first answer came from. The pin moves on with what this object writes, after a lost
race, and when names, notes or files are listed.

Uploads go the way `hf` sends them: through Xet if hf_xet is installed, else (`HF_HUB_DISABLE_XET=1`) through LFS;
files are handed over as paths, since from streams huggingface_hub uploads through LFS alone.

Tested with the real client against an emulator of the Hub (`tests/support/servers/hub.py`). Nothing here was ever compared
with the live Hub.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from huggingface_hub import CommitOperationAdd

from onnxreg.registry.store import hub_card, streams
from onnxreg.registry.store.hub_card import ATTRIBUTES, HUB_FILES, LFS, RepositoryLayout
from onnxreg.registry.store.hub_client import (
    IDENTITY,
    CommitSnapshot,
    HubClient,
    HubStore,
    NoRepositoryError,
    Operation,
    addition,
    is_file,
    parse_url,
    token_of,
)
from onnxreg.registry.store.layout import BlobKey, Kind, check_writer, index_path, new_identity, usable_key
from onnxreg.registry.store.protocol import IndexFile, Push, RegistryStore, StoredObject, TreeFile
from onnxreg.registry.store.staging import StagedBlobs, temporary
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, LostRaceError
from onnxreg.schema.core.ref import POLICY_LOG

LFS_RULE = f"blobs/** {LFS}"


class HubRegistry(RegistryStore):
    """The registry in a repository; for `known_id` see `RegistryStore`."""

    def __init__(self, hub: HubClient, known_id: str | None = None) -> None:
        self.commits = HubStore(hub)
        super().__init__(self.commits, known_id)
        self._intents: dict[str, bytes] = {}
        self._shown: str | None = None

    def blob_url(self, digest: Digest) -> str:
        return self.commits.hub.file_url(BlobKey(digest).path, self.commits.revision)

    def read_fresh(self, name: str) -> IndexFile | None:
        """Read a model's index file at the newest commit, which is pinned from now on."""
        self.commits.refresh()
        return self.read_index(name)

    def read_file(self, path: str, cached: StoredObject | None = None) -> StoredObject | None:
        if cached is None:
            self.commits.refresh()
        return super().read_file(path, cached)

    def files(self) -> Iterator[TreeFile]:
        """The files of the newest commit, but for those of people and of a layout."""
        at = self.commits.refresh()
        layout = RepositoryLayout.of_commit(at)
        others = HUB_FILES | (layout.files.keys() if layout else set())
        return iter(sorted(entry for entry in at.tree() if entry.path not in others))

    def add_note(self, kind: Kind, note: str, data: bytes) -> None:
        if kind == "intents":
            self._intents[note] = data
        else:
            super().add_note(kind, note, data)

    def notes(self, kind: Kind) -> dict[str, bytes]:
        return dict(self._intents) if kind == "intents" else super().notes(kind)

    def remove_note(self, kind: Kind, note: str) -> None:
        if kind == "intents":
            self._intents.pop(note, None)
        else:
            super().remove_note(kind, note)

    @contextmanager
    def push(self) -> Iterator["HubPush"]:
        check_writer(self.identity, self.url)
        with temporary() as directory:
            yield HubPush(self.commits, directory, self._shown)

    def choose_layout(self, name: str) -> None:
        """From the next push on, keep the layout of a model's newest release beside the registry.

        InputError if the repository has the layout of another model.
        """
        self._shown = name
        RepositoryLayout.of_model(self.commits.refresh(), name, True)
        self.commits.transact("Prepare the layout", lambda at, _: hub_card.attributes(at))

    def refresh_layout(self, name: str) -> None:
        """Bring the layout of a model up to date, if the last push did not."""
        index = self.read_fresh(name)
        if index is not None:
            with self.push() as push:
                self.commits.transact(f"Show {name}", lambda at, _: push.shown(at, name, index.data))


class HubPush(StagedBlobs, Push):
    """Blobs wait in a directory of this machine; `publish` sends them and the index file as one commit.

    `shown_name` is the model whose layout this push asks for.
    """

    def __init__(self, files: HubStore, directory: Path, shown_name: str | None = None) -> None:
        super().__init__(directory, files.url)
        self._shown = shown_name
        self.files = files
        self._relied: set[Digest] = set()

    def avoid(self, condemned: Collection[BlobKey]) -> None:
        super().avoid(condemned)
        self._relied = set()

    def _paths(self, digests: Iterable[Digest]) -> dict[str, Digest]:
        return {usable_key(digest, self.condemned).path: digest for digest in digests}

    def has(self, digests: Iterable[Digest]) -> set[Digest]:
        requested = set(digests)
        paths = self._paths(requested - self._staged.keys())
        present = {paths[path] for path in self.files.has(paths.keys() - {key.path for key in self.damaged})}
        self._relied |= present
        return present | (requested & self._staged.keys())

    def fetch(
        self, digest: Digest, size: int, open_at: Callable[[int], BinaryIO], path: Path | None = None
    ) -> int:
        """Stage a blob from another store; a file of this machine is sent from where it is."""
        with open_at(0) as stream:
            if path is None:
                return self.put(stream, digest)[1]
            actual, count = streams.pump(stream, None)
        streams.check(actual, digest, f"blob {digest}")
        self._staged[digest] = path
        return count

    def flush(self) -> None:
        self.files.transact(f"Restore {len(self._staged)} blobs", lambda at, _: self._additions(at))

    def _additions(self, at: CommitSnapshot) -> list[Operation]:
        """The staged blobs that are not there. Damaged blobs do not count as present."""
        paths = self._paths(self._staged)
        return [
            addition(path, paths[path], self._staged[paths[path]])
            for path in sorted(paths.keys() - (at.blobs(paths) - {key.path for key in self.damaged}))
        ]

    def shown(self, at: CommitSnapshot, name: str, index: bytes) -> list[Operation]:
        return hub_card.changes(at, name, index, self._url, self._staged, name == self._shown)

    def publish(self, name: str, index: bytes, expected: str | None) -> None:
        path = index_path(name)

        def decide(at: CommitSnapshot, is_doubtful: bool) -> list[Operation]:
            relied = self._paths(self._relied - self._staged.keys()).keys()
            staged = self._paths(self._staged).keys()
            entry = at.entries([path, *sorted(relied | staged)]).get(path)
            if is_doubtful and is_file(entry, token_of(index)):
                return []
            if not is_file(entry, expected):
                raise LostRaceError(f"the index of {name} changed meanwhile")
            if not relied <= at.blobs(relied) or at.condemned() & (relied | staged):
                raise LostRaceError(f"a collector came between the push of {name} and its blobs")
            shown = [] if name == POLICY_LOG else self.shown(at, name, index)
            return [*self._additions(at), CommitOperationAdd(path, index), *shown]

        self.files.transact(f"Publish {name}", decide)


def open_hub(
    url: str, create: bool = False, mirror_of: str | None = None, known_id: str | None = None
) -> HubRegistry:
    """The registry at a URL; `create` makes one, and its repository, if there is none. InputError if it holds something else."""
    hub = HubClient(parse_url(url), known_id)
    registry = HubRegistry(hub, known_id)
    if not create:
        return registry
    try:
        registry.commits.refresh()
    except NoRepositoryError:
        hub.create()
    identity = new_identity(mirror_of, mirror_of is not None)

    def decide(at: CommitSnapshot, _: bool) -> list[Operation]:
        if at.read(IDENTITY) is not None:
            return []
        paths = [entry.path for entry in hub.tree(at.revision, recursive=False)]
        if foreign_paths := [path for path in paths if path not in HUB_FILES]:
            raise InputError(
                f"{registry.url} is not a registry and holds {foreign_paths[0]}",
                "name a registry, or a repository that is empty or does not exist yet",
            )
        rules = (at.read(ATTRIBUTES) or b"").decode(errors="replace").splitlines()
        rules = [*(rule for rule in rules if rule != LFS_RULE), LFS_RULE, ""]
        return [
            CommitOperationAdd(ATTRIBUTES, "\n".join(rules).encode()),
            CommitOperationAdd(IDENTITY, identity),
        ]

    registry.commits.transact("Create the registry", decide)
    return registry
