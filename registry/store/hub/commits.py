"""The commits of a repository on the Hub: what is at one of them, and making the next one."""

import random
import threading
import time
from collections.abc import Callable, Iterable

from onnxreg.registry.store.hub import repo_card
from onnxreg.registry.store.hub.hub_client import HubClient, HubFile, Operation, git_oid
from onnxreg.registry.store.hub.hub_errors import StaleParentError
from onnxreg.registry.store.layout import NOTE, BlobKey, Kind, note_path
from onnxreg.registry.store.net.retry import UnansweredError
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import LostRaceError, RemoteError

IDENTITY = "registry.json"
USUAL = (IDENTITY, repo_card.PATH, "gc/condemned")
"""Asked for along with whatever else is asked for first, since a push will want to know of them."""

TRIES = 100
LONGEST_WAIT = 2.0
"""Seconds between two tries to commit."""
UNANSWERED = 5
"""So many commits of one transaction may stay without an answer."""


def token_of(data: bytes) -> str:
    """What the Hub calls these bytes, be they a regular file or in LFS."""
    return f"{git_oid(data)}-{Digest.of(data).hex}"


def is_file(entry: HubFile | None, token: str | None) -> bool:
    """Whether a file is the one that a token names; None names no file."""
    return entry is None if token is None else entry is not None and entry.oid in token.split("-")


class CommitSnapshot:
    """The repository at one commit. That never changes, so nothing is asked for twice."""

    def __init__(self, hub: HubClient, revision: str) -> None:
        self.revision = revision
        self._hub = hub
        self._entries: dict[str, HubFile | None] = {}
        self._data: dict[str, bytes | None] = {}
        self._trees: dict[str, list[HubFile]] = {}

    def entries(self, paths: Iterable[str]) -> dict[str, HubFile]:
        """Those of these files and folders that are there."""
        asked = list(paths)
        unknown = [path for path in dict.fromkeys([*asked, *USUAL]) if path not in self._entries]
        if any(path not in self._entries for path in asked):
            found = {entry.path: entry for entry in self._hub.entries(self.revision, unknown)}
            self._entries |= {path: found.get(path) for path in unknown}
        known = ((path, self._entries[path]) for path in asked)
        return {path: entry for path, entry in known if entry is not None}

    def blobs(self, paths: Iterable[str]) -> set[str]:
        """Those of these keys under which a blob lies; in LFS the Hub tells whether it is the right one."""
        return {path for path, entry in self.entries(paths).items() if _is_blob(entry)}

    def lacks(self, path: str) -> bool:
        """Whether it is known that there is no such file."""
        return path in self._entries and self._entries[path] is None

    def read(self, path: str) -> bytes | None:
        """A small file; None where there is none."""
        if path not in self._data:
            self.remember(path, None if self.lacks(path) else self._hub.read(path, self.revision)[0])
        return self._data[path]

    def remember(self, path: str, data: bytes | None) -> None:
        """A file that was read from this commit, and what the Hub calls it."""
        self._data[path] = data
        self._entries[path] = (
            None if data is None else HubFile(path, len(data), token_of(data).partition("-")[0])
        )

    def tree(self, folder: str = "") -> list[HubFile]:
        """Every file below a folder."""
        if folder not in self._trees:
            known = folder and self.lacks(folder)
            found = [] if known else self._hub.tree(self.revision, folder)
            self._trees[folder] = [entry for entry in found if entry.size is not None]
        return self._trees[folder]

    def notes(self, kind: Kind) -> dict[str, bytes]:
        names = [entry.path.rpartition("/")[2] for entry in self.tree(f"gc/{kind}")]
        found = ((name, self.read(note_path(kind, name))) for name in names if NOTE.fullmatch(name))
        return {name: data for name, data in found if data is not None}

    def condemned(self) -> set[str]:
        """The paths of the keys that some collector may be about to delete."""
        if not self.entries(["gc/condemned"]):
            return set()
        return {path for data in self.notes("condemned").values() for path in data.decode().split()}


def _is_blob(entry: HubFile) -> bool:
    key = BlobKey.of_path(entry.path)
    in_lfs = len(entry.oid) == 64
    return key is not None and entry.size is not None and (not in_lfs or entry.oid == key.digest.hex)


Decide = Callable[[CommitSnapshot, bool], list[Operation] | None]
"""What to commit upon a snapshot; None: nothing. Is told whether a commit of it before may have been applied."""


class CommitHead:
    """The newest commit of a repository, pinned, so that answers fit together, until something moves it on."""

    def __init__(self, hub: HubClient) -> None:
        self._hub = hub
        self._pin: CommitSnapshot | None = None
        self._lock = threading.RLock()

    @property
    def revision(self) -> str | None:
        """The commit that is pinned, if there is one."""
        return self._pin.revision if self._pin else None

    def now(self) -> CommitSnapshot:
        """The commit that is pinned; the newest one where none is."""
        with self._lock:
            return self._pin or self.refresh()

    def refresh(self) -> CommitSnapshot:
        """Pin the newest commit."""
        return self._learn(IDENTITY)

    def _learn(self, path: str, known: bytes | None = None) -> CommitSnapshot:
        """Pin the newest commit, learnt with a file that is wanted anyway."""
        data, revision = self._hub.read(path, known=known)
        with self._lock:
            if self._pin is None or self._pin.revision != revision:
                self._pin = CommitSnapshot(self._hub, revision)
            self._pin.remember(path, data)
            return self._pin

    def read(self, path: str, known: bytes | None = None) -> bytes | None:
        """A small file; where no commit is pinned, the newest one is learnt by reading it.

        `known` are bytes that it had: where it has them still, they need not be sent.
        """
        with self._lock:
            return (self._pin or self._learn(path, known)).read(path)

    def transact(self, message: str, decide: Decide) -> None:
        """Commit what is decided upon one commit, as its only child; decide again where another came first.

        What `decide` raises ends it. RemoteError where the Hub never answers, or there is no end of other commits.
        """
        unanswered = 0
        for attempt in range(TRIES):
            at = self.now() if attempt == 0 else self.refresh()
            try:
                operations = decide(at, unanswered > 0)
                if operations is None:
                    return
                revision = self._hub.commit(operations, message, at.revision)
            except StaleParentError:
                time.sleep(random.uniform(0, min(LONGEST_WAIT, 0.01 * 2**attempt)))
            except UnansweredError:
                unanswered += 1
                if unanswered == UNANSWERED:
                    raise
                time.sleep(random.uniform(0, min(LONGEST_WAIT, 0.1 * 2**unanswered)))
            except LostRaceError:
                self._pin = None
                raise
            else:
                self._pin = CommitSnapshot(self._hub, revision)
                return
        raise RemoteError(
            f"{self._hub.place.url} is being changed by others without end", "run the command again"
        )
