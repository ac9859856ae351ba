"""The commits of a repository on the Hub: reading one of them, and making the next one."""

import random
import threading
import time
from collections.abc import Callable, Iterable

from onnxreg.registry.store.hub import repo_card
from onnxreg.registry.store.hub.hub_client import (
    HubClient,
    HubFile,
    Operation,
    StaleParentError,
    git_oid,
    pause,
)
from onnxreg.registry.store.layout import NOTE, BlobKey, Kind, note_path
from onnxreg.registry.store.net.requests import MAX_PAUSE_SECONDS, UnansweredError
from onnxreg.registry.support import parallel
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import LostRaceError, RemoteError

IDENTITY = "registry.json"
LAYOUT = "layout.json"
PREFETCHED_PATHS = (IDENTITY, repo_card.PATH, LAYOUT, "gc/condemned")
"""Paths that the first request also asks for, since a push needs them."""

MAX_COMMIT_TRIES = 100
MAX_WAIT_SECONDS = 2.0
"""Seconds between two tries to commit."""
MAX_UNANSWERED_COMMITS = 5
"""Commits of one transaction that may stay without an answer."""


def token_of(data: bytes) -> str:
    """The token of these bytes: their ids on the Hub as a regular file and in LFS."""
    return f"{git_oid(data)}-{Digest.of(data).hex}"


def is_file(entry: HubFile | None, token: str | None) -> bool:
    """True if the file has the bytes that a token names; the token None means that there is no file."""
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
        """Return those of these files and folders that exist."""
        requested = list(paths)
        if any(path not in self._entries for path in requested):
            asked_paths = dict.fromkeys(
                path for path in (*requested, *PREFETCHED_PATHS) if path not in self._entries
            )
            received = {entry.path: entry for entry in self._hub.entries(self.revision, list(asked_paths))}
            self._entries |= {path: received.get(path) for path in asked_paths}
        pairs = ((path, self._entries[path]) for path in requested)
        return {path: entry for path, entry in pairs if entry is not None}

    def blobs(self, paths: Iterable[str]) -> set[str]:
        """Return those of these keys that hold a blob; for LFS the Hub's digest must be the right one."""
        return {path for path, entry in self.entries(paths).items() if _is_blob(entry)}

    def is_absent(self, path: str) -> bool:
        """True if the file is known to be absent."""
        return path in self._entries and self._entries[path] is None

    def read(self, path: str) -> bytes | None:
        """A small file; None if there is none."""
        if path not in self._data:
            self.remember(path, None if self.is_absent(path) else self._hub.read(path, self.revision)[0])
        return self._data[path]

    def remember(self, path: str, data: bytes | None) -> None:
        """Cache a file that was read from this commit."""
        self._data[path] = data
        self._entries[path] = None if data is None else HubFile(path, len(data), git_oid(data))

    def tree(self, folder: str = "") -> list[HubFile]:
        """Every file below a folder."""
        if folder not in self._trees:
            entries = [] if self.is_absent(folder) else self._hub.tree(self.revision, folder)
            self._trees[folder] = [entry for entry in entries if entry.size is not None]
        return self._trees[folder]

    def notes(self, kind: Kind) -> dict[str, bytes]:
        names = [entry.path.rpartition("/")[2] for entry in self.tree(f"gc/{kind}")]
        contents = ((name, self.read(note_path(kind, name))) for name in names if NOTE.fullmatch(name))
        return {name: data for name, data in contents if data is not None}

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
"""Returns the operations to commit on a snapshot, or None. The flag: an earlier commit may have been applied."""


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
        """The pinned commit; the newest one if none is pinned."""
        with self._lock:
            return self._pin or self.refresh()

    def refresh(self, path: str = IDENTITY, cached: bytes | None = None) -> CommitSnapshot:
        """Pin the newest commit, which is learned by reading a file that is needed anyway."""
        data, revision = self._hub.read(path, cached=cached)
        with self._lock:
            if self._pin is None or self._pin.revision != revision:
                self._pin = CommitSnapshot(self._hub, revision)
            self._pin.remember(path, data)
            return self._pin

    def read(self, path: str, cached: bytes | None = None) -> bytes | None:
        """Read a small file; if no commit is pinned, this pins the newest one.

        `cached` are the bytes as read before: if the file has not changed, they need not be sent.
        """
        with self._lock:
            return (self._pin or self.refresh(path, cached)).read(path)

    def transact(self, message: str, decide: Decide) -> None:
        """Commit the decided operations as the only child of one commit; decide again if another commit came first.

        Errors of `decide` end it. RemoteError if the Hub never answers, or if other commits always come first.
        """
        unanswered = 0
        for attempt in range(MAX_COMMIT_TRIES):
            at = self.now() if attempt == 0 else self.refresh()
            try:
                operations = decide(at, unanswered > 0)
                if operations is not None:
                    self._pin = CommitSnapshot(self._hub, self._hub.commit(operations, message, at.revision))
                return
            except StaleParentError:
                time.sleep(random.uniform(0, min(MAX_WAIT_SECONDS, 0.01 * 2**attempt)))
            except UnansweredError as error:
                unanswered += 1
                least = pause(error.__cause__)
                if unanswered == MAX_UNANSWERED_COMMITS or least > MAX_PAUSE_SECONDS:
                    raise
                parallel.sleep(least + random.uniform(0, min(MAX_WAIT_SECONDS, 0.1 * 2**unanswered)))
            except LostRaceError:
                self._pin = None
                raise
        raise RemoteError(
            f"{self._hub.location.url} is being changed by others without end", "run the command again"
        )
