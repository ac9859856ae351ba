"""Trials of the Hugging Face Hub, in a private repository of their own.

A branch of the registry's repository would leave its files in that repository's LFS storage; a repository can
be deleted as a whole.
"""

import hashlib
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from huggingface_hub import CommitOperationAdd, CommitOperationDelete

from onnxreg.registry.conformance.trial import InapplicableError, PromiseTrial, push_and_pull
from onnxreg.registry.store.hub.hub import HubRegistry
from onnxreg.registry.store.hub.hub_client import HubClient, HubUrl, Operation
from onnxreg.registry.store.hub.hub_errors import StaleParentError
from onnxreg.registry.store.layout import BlobKey
from onnxreg.registry.store.net.requests import UnansweredError
from onnxreg.registry.store.promises import RACERS
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import Advice, RegError

LFS_FILE_BYTES = 2**20
"""Size of a file that goes to LFS."""


class HubScratch:
    """A repository beside that of the registry."""

    def __init__(self, url: HubUrl) -> None:
        owner = url.repo.partition("/")[0]
        self._url = HubUrl(f"{owner}/onnxreg-live-{secrets.token_hex(8)}", url.repo_type)
        self._hub = HubClient(self._url)

    @property
    def description(self) -> str:
        return f"the private repository {self._url.url}"

    @property
    def remedy(self) -> Advice:
        return Advice("delete-hub-repository", repository=self._url.repo, type=self._url.repo_type)

    def make(self) -> None:
        try:
            with self._hub.errors("making a scratch repository"):
                self._hub.api.create_repo(private=True, exist_ok=False, **self._hub.repo)
            HubRegistry.create(self._hub)
        except BaseException:
            with suppress(RegError):
                list(self.clear())
            raise

    def trials(self) -> list[PromiseTrial]:
        return [
            PromiseTrial("compare-and-swap", "a commit upon a stale parent is refused", self._stale_parent),
            PromiseTrial(
                "compare-and-swap, raced",
                f"of {RACERS} commits upon one parent, one is taken",
                self._raced,
            ),
            PromiseTrial("commit", "a commit is seen whole, or not at all", self._whole),
            PromiseTrial("LFS", "a blob goes to LFS, and is called by its SHA-256", self._lfs),
            PromiseTrial("ranges", "the rest of a file is sent alone", self._ranges),
            PromiseTrial("pinning", "an older commit gives the older bytes", self._pinned),
            PromiseTrial("read-after-write", "what was committed is read at once", self._read_after_write),
            PromiseTrial("list-after-write", "what was committed is listed at once", self._list_after_write),
            PromiseTrial("delete", "what was deleted is gone at once", self._delete),
            PromiseTrial(
                "lost answer", "an own commit whose answer was lost is not a lost race", self._lost_answer
            ),
            PromiseTrial(
                "two writers",
                "both pushes arrive, and come back whole",
                lambda: push_and_pull(lambda: HubRegistry(HubClient(self._url))),
            ),
        ]

    def clear(self) -> Iterator[str]:
        with self._hub.errors("deleting the scratch repository"):
            self._hub.api.delete_repo(missing_ok=True, **self._hub.repo)
            still_exists = self._hub.api.repo_exists(**self._hub.repo)
        if still_exists:
            yield "it is still there"

    def _head(self) -> str:
        return self._hub.read("registry.json")[1]

    def _commit(
        self, files: dict[str, bytes | None], parent: str | None = None, hub: HubClient | None = None
    ) -> str:
        """Commit files, None deletes one; returns the commit. StaleParentError if the Hub refuses the parent."""
        changes: list[Operation] = [
            CommitOperationDelete(path, is_folder=False) if data is None else CommitOperationAdd(path, data)
            for path, data in files.items()
        ]
        return (hub or self._hub).commit(changes, "Try a commit", parent or self._head())

    def _is_accepted(self, files: dict[str, bytes | None], parent: str, hub: HubClient | None = None) -> bool:
        try:
            self._commit(files, parent, hub)
        except StaleParentError:
            return False
        return True

    def _stale_parent(self) -> Iterator[str]:
        parent = self._head()
        if not self._is_accepted({"trial/swap": b"first"}, parent):
            yield "a commit upon the head is refused"
        if self._is_accepted({"trial/swap": b"second"}, parent):
            yield "it is taken"
        if self._hub.read("trial/swap")[0] != b"first":
            yield "other bytes than those of the first commit are there"

    def _raced(self) -> Iterator[str]:
        parent = self._head()
        tries: list[bytes] = [secrets.token_bytes(16) for _ in range(RACERS)]
        with ThreadPoolExecutor(RACERS) as pool:
            results = list(
                pool.map(
                    lambda data: self._is_accepted({"trial/race": data}, parent, HubClient(self._url)), tries
                )
            )
        winners = [data for data, is_winner in zip(tries, results, strict=True) if is_winner]
        if len(winners) != 1:
            yield f"{len(winners)} of {RACERS} were taken, instead of one"
        elif self._hub.read("trial/race")[0] != winners[0]:
            yield "another one's bytes are there than the winner's"

    def _whole(self) -> Iterator[str]:
        before, blob = self._head(), secrets.token_bytes(1000)
        files: dict[str, bytes | None] = {BlobKey(Digest.of(blob)).path: blob, "trial/index": b"index"}
        after = self._commit(files, before)
        if self._hub.entries(before, list(files)):
            yield "a part of it is seen before it"
        if len(self._hub.entries(after, list(files))) != 2:
            yield "only a part of it is there"
        late: dict[str, bytes | None] = {"trial/late": b"late", "trial/too": b"late"}
        if self._is_accepted(late, before) or self._hub.entries(self._head(), list(late)):
            yield "of a commit that was refused something is there"

    def _blob(self) -> tuple[str, bytes, str]:
        """Commit a fresh blob; return its path, its bytes and the commit."""
        data = secrets.token_bytes(LFS_FILE_BYTES)
        path = BlobKey(Digest.of(data)).path
        return path, data, self._commit({path: data})

    def _lfs(self) -> Iterator[str]:
        path, data, commit = self._blob()
        (entry,) = self._hub.entries(commit, [path])
        if entry.oid != hashlib.sha256(data).hexdigest():
            yield "the Hub calls it by another name"
        if self._hub.read(path)[0] != data:
            yield "it has other bytes than were sent"

    def _ranges(self) -> Iterator[str]:
        path, data, commit = self._blob()
        response = self._hub.get(path, commit, 1000)
        try:
            if response.status_code == 200:
                raise InapplicableError("all of it is sent again, so that a broken download begins anew")
            if response.read() != data[1000:]:
                yield "other bytes came"
        finally:
            response.close()

    def _pinned(self) -> Iterator[str]:
        older = self._commit({"trial/pin": b"older"})
        newer = self._commit({"trial/pin": b"newer"})
        if (self._hub.read("trial/pin", older), self._hub.read("trial/pin", newer)) != (
            (b"older", older),
            (b"newer", newer),
        ):
            yield "the bytes, or the commit that they are said to come from, are others"

    def _read_after_write(self) -> Iterator[str]:
        for number in range(3):
            data = b"%d" % number
            commit = self._commit({"trial/read": data})
            if self._hub.read("trial/read") != (data, commit):
                yield "older bytes are read, or another commit is named"

    def _list_after_write(self) -> Iterator[str]:
        commit = self._commit({"trial/list/one": b"1", "trial/list/two": b"2"})
        paths = {entry.path for entry in self._hub.tree(commit, "trial/list") if entry.size is not None}
        if paths != {"trial/list/one", "trial/list/two"}:
            yield f"{len(paths)} of 2 files are listed"

    def _delete(self) -> Iterator[str]:
        before = self._commit({"trial/delete": b"deleted"})
        self._commit({"trial/delete": None})
        if self._hub.read("trial/delete")[0] is not None:
            yield "it is still there"
        if self._hub.read("trial/delete", before)[0] != b"deleted":
            yield "it is gone from the commit before too"

    def _lost_answer(self) -> Iterator[str]:
        with HubRegistry(_ForgetfulClient(self._url)).push() as push:
            push.publish("trial/lost", b"{}\n", None)
        index = HubRegistry(HubClient(self._url)).read_index("trial/lost")
        if index is None or index.data != b"{}\n":
            yield "it is not there"


class _ForgetfulClient(HubClient):
    """A client that loses the answer to its first commit."""

    def __init__(self, url: HubUrl) -> None:
        super().__init__(url)
        self._forgot = False

    def commit(self, operations: list[Operation], message: str, parent: str) -> str:
        commit_id = super().commit(operations, message, parent)
        if not self._forgot:
            self._forgot = True
            raise UnansweredError("the answer to a commit was thrown away")
        return commit_id
