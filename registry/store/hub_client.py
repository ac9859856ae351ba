"""Send requests to one repository on the Hugging Face Hub. All errors are RegErrors.

Files are read as from any web server. All other requests use huggingface_hub. A request is repeated after failures that
may pass (429, 5xx, a broken connection). A commit is not repeated, because the Hub may have applied it. No name that
the Hub sends becomes a path on this machine.
"""

import os
import random
import re
import threading
import time
import urllib.error
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from email.message import Message
from functools import partial
from http.client import HTTPResponse
from itertools import islice
from logging import ERROR
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import httpx2
from huggingface_hub import (
    CommitOperationAdd,
    CommitOperationCopy,
    CommitOperationDelete,
    HfApi,
    HfUri,
    constants,
    hf_hub_url,
    parse_hf_uri,
)
from huggingface_hub.errors import (
    HfHubHTTPError,
    HfUriError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
)
from huggingface_hub.hf_api import RepoFile, RepoFolder
from huggingface_hub.utils import (  # type: ignore[attr-defined]
    build_hf_headers,
    disable_progress_bars,
    get_session,
    logging,
)
from huggingface_hub.utils.sha import git_hash

from onnxreg.registry import system
from onnxreg.registry.store import requests
from onnxreg.registry.store.protocol import NOTE, BlobKey, ObjectStore, StoredObject, TreeFile
from onnxreg.schema.core.bounds import MAX_HUB_FILES
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import HostError, InputError, LostRaceError, RegError, RemoteError

LIBRARY_NAME = "onnxreg"
MAX_COMMIT_TRIES = 100
MAX_WAIT_SECONDS = 2.0
MAX_UNANSWERED_COMMITS = 5
MAX_PATHS = 1000  # maximum number of paths that the Hub accepts in one request
MAX_SILENCE_SECONDS = 120.0  # a request through huggingface_hub fails after this many seconds without a byte
IDENTITY, CARD, LAYOUT = "registry.json", "README.md", "layout.json"
PREFETCHED_PATHS = (IDENTITY, CARD, LAYOUT, "gc/condemned")
"""Paths that every push needs. Their entries are requested together with the first entries of a commit."""
Operation = CommitOperationAdd | CommitOperationCopy | CommitOperationDelete
Result = TypeVar("Result")
_LOGIN = "log in with `hf auth login`, or set HF_TOKEN to a token that may do this"
FINAL_ERRORS = (
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
    httpx2.LocalProtocolError,
    httpx2.TooManyRedirects,
)
"""Errors of httpx after which another try is useless."""
_COMMIT = re.compile(r"[0-9a-f]{40}")


class NoRepositoryError(RemoteError):
    """The repository does not exist, or this token may not see it."""


class StaleParentError(Exception):
    """A commit was not applied and never will be, because its parent is no longer the newest commit."""


def parse_url(url: str) -> HfUri:
    """Parse hf://[models/ | datasets/]ORG/NAME[@REVISION]. Raises InputError if the URL has another form.

    To write, the revision must be a branch.
    """
    try:
        uri = parse_hf_uri(url)
        is_repository = uri.type in ("model", "dataset") and not uri.path_in_repo
        if not is_repository or not url.startswith(constants.HF_PROTOCOL):
            raise HfUriError(url, "A registry fills a repository for models or datasets.")
    except HfUriError as error:
        raise InputError(
            f"not a repository on the Hugging Face Hub: {_one_line(error)[:300]}",
            "write hf://ORG/NAME or hf://ORG/NAME@BRANCH; in a branch, %2F for a slash",
        ) from error
    return uri


def tree_file(entry: RepoFile | RepoFolder) -> TreeFile:
    """Convert an entry of huggingface_hub. A folder gets the size None. Raises TypeError if the entry is malformed."""
    if isinstance(entry, RepoFolder):
        file = TreeFile(entry.path, None, entry.tree_id)
    else:
        file = TreeFile(entry.path, entry.size, entry.lfs.sha256 if entry.lfs else entry.blob_id)
    if not all(map(isinstance, file, (str, int | None, str))):
        raise TypeError(f"{file} is malformed")
    return file


class HubFiles(requests.HttpStore):
    """The files of a repository, requested by URL. Requests have the token that the command `hf` would send."""

    def authorization(self) -> Mapping[str, str]:
        return build_hf_headers(library_name=LIBRARY_NAME)

    def hint(self, status: int) -> str:
        gated = "if the repository is gated, ask for access on its page; " if status == 403 else ""
        return f"{gated}{_LOGIN}" if status in (401, 403) else "check the URL, and HF_ENDPOINT"

    def refusal_text(self, error: urllib.error.HTTPError) -> str:
        return _one_line(error.headers.get("X-Error-Message") or error.reason)[:200]

    def send(
        self, method: str, key: str, headers: Mapping[str, str], body: requests.Body = None
    ) -> HTTPResponse:
        if constants.HF_HUB_OFFLINE:
            raise RemoteError(f"{key} cannot be read in offline mode", "unset HF_HUB_OFFLINE")
        return super().send(method, key, headers, body)


class HubClient:
    """One repository on the Hub. `HF_ENDPOINT`, `HF_TOKEN` and `hf auth login` have the same effect as for `hf`."""

    def __init__(self, uri: HfUri, known_id: str | None = None) -> None:
        self.url = uri.to_uri().replace("hf://models/", "hf://")
        self._revision = uri.revision or constants.DEFAULT_REVISION
        self._known_id = known_id
        endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or None
        self.api = HfApi(endpoint=endpoint, library_name=LIBRARY_NAME)
        self._repo: dict[str, Any] = {"repo_id": uri.id, "repo_type": uri.type}
        self._files = HubFiles(self.file_url("x").removesuffix("/x"))
        if "HF_HUB_DISABLE_PROGRESS_BARS" not in os.environ:
            disable_progress_bars()
        if not {"HF_HUB_VERBOSITY", "HF_DEBUG"} & os.environ.keys():
            logging.set_verbosity(ERROR)  # warnings name signed addresses

    def file_url(self, path: str, revision: str | None = None) -> str:
        return hf_hub_url(
            filename=path, revision=revision or self._revision, endpoint=self.api.endpoint, **self._repo
        )

    def head(self) -> str:
        operation = "looking for the newest commit"
        info = self._ask(operation, partial(self.api.repo_info, **self._repo, revision=self._revision))
        if not _COMMIT.fullmatch(str(info.sha)):
            raise self._no_answer(operation)
        return str(info.sha)

    def read(
        self, path: str, revision: str | None = None, cached: bytes | None = None
    ) -> tuple[bytes | None, str]:
        """Return a small file's bytes, or None if it is absent, and the id of the commit from which it was read.

        This commit is `revision`, by default the newest commit. If the file's bytes are `cached`, they are not sent
        again.
        """
        conditions = {"If-None-Match": f'"{git_hash(cached)}"'} if cached is not None else {}
        data: bytes | None
        try:
            data, headers = self._files.fetch(self.file_url(path, revision), conditions)
        except requests.RefusedError as error:
            headers = error.headers
            if error.status != 304 and headers.get("X-Error-Code") != "EntryNotFound":
                if error.status in (401, 404) and revision is None:
                    return self.read(path, self.head())  # its errors say more
                raise
            data = cached if error.status == 304 else None
        header = headers.get(constants.HUGGINGFACE_HEADER_X_REPO_COMMIT, "")
        commit = revision or (header if _COMMIT.fullmatch(header) else None)
        if commit is not None:
            return data, commit
        if data is not None and data.lstrip()[:1] == b"<":
            raise self._no_answer(f"reading {path}")
        return self.read(path, self.head())

    def open(self, path: str, revision: str, start: int = 0) -> BinaryIO | None:
        return self._files.open(self.file_url(path, revision), start)

    def entries(self, revision: str, paths: Sequence[str]) -> list[TreeFile]:
        """Return the existing files and folders at these paths in a commit."""
        files: list[TreeFile] = []
        for start in range(0, len(paths), MAX_PATHS):
            part = {"paths": list(paths[start : start + MAX_PATHS]), "revision": revision, **self._repo}
            entries = self._ask("looking for files", partial(self.api.get_paths_info, **part))
            with self._errors("looking for files"):
                files += map(tree_file, entries)
        return files

    def tree(self, revision: str, folder: str = "", recursive: bool = True) -> list[TreeFile]:
        """List a folder of a commit. Return [] if the folder does not exist."""
        with self._errors("listing files"):
            try:
                entries = self.api.list_repo_tree(
                    path_in_repo=folder or None, revision=revision, recursive=recursive, **self._repo
                )
                files = [tree_file(entry) for entry in islice(entries, MAX_HUB_FILES + 1)]
            except RemoteEntryNotFoundError:
                return []
        if len(files) > MAX_HUB_FILES:
            raise RemoteError(f"{self.url} lists more than {MAX_HUB_FILES:,} files", "check HF_ENDPOINT")
        return files

    def create(self) -> None:
        self._ask("making the repository", partial(self.api.create_repo, exist_ok=True, **self._repo))

    def upload(self, operations: list[Operation]) -> None:
        """Upload the new files of these operations, before the operations are committed."""
        additions = [operation for operation in operations if isinstance(operation, CommitOperationAdd)]
        first = {addition.upload_info.sha256: addition for addition in additions}
        options = {"free_memory": False, "gitignore_content": "", "revision": self._revision, **self._repo}
        with self._errors("uploading"):
            self.api.preupload_lfs_files(additions=first.values(), **options)
            if len(first) < len(additions):  # the others have the same bytes, which the Hub has now
                self.api.preupload_lfs_files(additions=additions, **options)

    def commit(self, operations: list[Operation], message: str, parent: str) -> str:
        """Apply all operations in one commit after the commit `parent`, and return the id of the new commit.

        The caller must have called `upload` with the operations. Raises StaleParentError if the commit was not applied,
        and UnansweredError if it is unknown whether the commit was applied.
        """
        address = {"revision": self._revision, **self._repo}
        try:
            with self._errors("committing"):
                info = self.api.create_commit(
                    operations=operations, commit_message=message, parent_commit=parent, **address
                )
        except RemoteError as error:
            cause, status = error.__cause__, getattr(error, "status", 0)
            if status in (409, 412) or isinstance(cause, RemoteEntryNotFoundError):
                raise StaleParentError from error
            if status == 429:
                raise requests.UnansweredError(error.message, error.hint) from error
            is_refusal = 0 < status < 500 and status not in requests.PASSING_STATUS
            is_redirect = cause is None or isinstance(
                cause, httpx2.TooManyRedirects
            )  # None: `_check_redirect`
            if is_refusal or is_redirect or isinstance(error, NoRepositoryError):
                raise
            if isinstance(cause, ValueError) and "README.md" in str(cause):
                raise RemoteError(
                    f"the Hub refuses the README.md of {self.url}: {_one_line(cause)}",
                    "repair the metadata between its first two lines of dashes, then push again",
                ) from error
            raise requests.UnansweredError(
                f"{self.url} did not say whether it took a commit: {_one_line(cause)}",
                "run the command again; what is there already is not sent again",
            ) from error
        return str(info.oid)

    def _ask(self, operation: str, request: Callable[[], Result]) -> Result:
        def attempt() -> Result:
            with self._errors(operation):
                return request()

        return requests.retrying(attempt)

    def _no_answer(self, operation: str) -> RemoteError:
        hint = "check HF_ENDPOINT; is there a proxy in between?"
        return RemoteError(f"{operation}: {self.url}: the answer is not the Hub's", hint)

    @contextmanager
    def _errors(self, operation: str) -> Iterator[None]:
        """A context for calls of huggingface_hub. It converts errors, sets a read timeout, and checks redirects."""
        try:
            client = get_session()
        except (ImportError, ValueError, httpx2.InvalidURL, OSError) as error:
            hint = f"check SSL_CERT_FILE and {requests.proxy_variables()}"
            raise HostError(f"{operation}: {self.url}: {_one_line(error)}", hint) from error
        if _check_redirect not in (hooks := client.event_hooks)["response"]:
            client.event_hooks = {**hooks, "response": [*hooks["response"], _check_redirect]}
        if client.timeout == httpx2.Timeout(None):
            client.timeout = httpx2.Timeout(MAX_SILENCE_SECONDS)
        try:
            yield
        except (RegError, StaleParentError):
            raise
        except (httpx2.HTTPError, OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
            raise self._translated(error, operation) from error

    def _translated(self, error: Exception, operation: str) -> RegError:
        if isinstance(error, RuntimeError) and isinstance(error.__cause__, Exception):
            error = error.__cause__
        label = f"{operation}: {self.url}"
        if isinstance(error, RepositoryNotFoundError):
            hint = f"check the name; if it is private, {_LOGIN}"
            if self._known_id:
                hint += f"; if it was deleted for good: reg trust reset {self._known_id}"
            return NoRepositoryError(f"{label} does not exist, or you may not see it", hint)
        if isinstance(error, HfHubHTTPError):
            status, headers = error.response.status_code, Message()
            for name, value in error.response.headers.items():
                headers[name] = value
            words = _one_line(error.server_message or "the Hub refuses")[:200]
            return requests.RefusedError(
                f"{label}: {words} ({status})", status, self._files.hint(status), headers
            )
        if isinstance(error, httpx2.HTTPError | ConnectionError | TimeoutError):
            is_final = isinstance(error, FINAL_ERRORS) or requests.is_final(error)
            kind = RemoteError if is_final else requests.UnansweredError
            hint = f"check the network, HF_ENDPOINT, SSL_CERT_FILE and {requests.proxy_variables()}"
            return kind(f"{label} cannot be reached: {_one_line(error) or type(error).__name__}", hint)
        if isinstance(error, OSError):
            return HostError(f"{label}: {error.strerror or type(error).__name__}", "check the disk here")
        return self._no_answer(operation)


def _check_redirect(response: httpx2.Response) -> None:
    if response.has_redirect_location:
        requests.next_url(str(response.request.url), response.headers["Location"])


def _one_line(error: object) -> str:
    """Return the first non-blank line of an error. URLs are removed, because URLs for uploads contain signatures."""
    line = next((line for line in str(error).splitlines() if line.strip()), "")
    return re.sub(r"https?://\S+", "...", line).strip()


def addition(path: str, digest: Digest, file: Path) -> CommitOperationAdd:
    """Return the operation that adds a local file with a known digest, so that its bytes are not hashed again."""
    operation = CommitOperationAdd(path, str(file))
    operation.upload_info.sha256 = bytes.fromhex(digest.hex)
    return operation


def token_of(data: bytes) -> str:
    """Return `GITID-SHA256`. The Hub's id of a file with these bytes is GITID or, if the file is in LFS, SHA256."""
    return f"{git_hash(data)}-{Digest.of(data).hex}"


def is_file(entry: TreeFile | None, token: str | None) -> bool:
    """True if the file at `entry` has this token (see `token_of`). Both are None for an absent file."""
    return entry is None if token is None else entry is not None and entry.token in token.split("-")


def _is_blob(entry: TreeFile) -> bool:
    key, is_regular = BlobKey.of_path(entry.path), len(entry.token) < 64
    return key is not None and entry.size is not None and (is_regular or entry.token == key.digest.hex)


class CommitSnapshot:
    """The repository at one commit. Since a commit never changes, each entry and file is requested only once."""

    def __init__(self, hub: HubClient, revision: str) -> None:
        self.revision = revision
        self._hub = hub
        self._entries: dict[str, TreeFile | None] = {}
        self._data: dict[str, bytes | None] = {}

    def entries(self, paths: Iterable[str]) -> dict[str, TreeFile]:
        """Return the files and folders at these paths, by path. Absent paths are left out."""
        requested = list(paths)
        if not self._entries.keys() >= set(requested):
            unknown = sorted({*requested, *PREFETCHED_PATHS} - self._entries.keys())
            received = {entry.path: entry for entry in self._hub.entries(self.revision, unknown)}
            self._entries |= {path: received.get(path) for path in unknown}
        return {path: entry for path in requested if (entry := self._entries[path]) is not None}

    def blobs(self, paths: Iterable[str]) -> set[str]:
        """Return the paths of existing blobs. A file in Git LFS counts only if its digest is part of its path."""
        return {path for path, entry in self.entries(paths).items() if _is_blob(entry)}

    def is_absent(self, path: str) -> bool:
        """True if an earlier answer said that the file is absent. False if it exists, or was never requested."""
        return path in self._entries and self._entries[path] is None

    def read(self, path: str) -> bytes | None:
        if path not in self._data:
            self.remember(path, None if self.is_absent(path) else self._hub.read(path, self.revision)[0])
        return self._data[path]

    def remember(self, path: str, data: bytes | None) -> None:
        self._data[path] = data
        self._entries[path] = None if data is None else TreeFile(path, len(data), git_hash(data))

    def tree(self, folder: str = "") -> list[TreeFile]:
        entries = [] if self.is_absent(folder) else self._hub.tree(self.revision, folder)
        return [entry for entry in entries if entry.size is not None]

    def condemned(self) -> set[str]:
        """Return the paths of all blobs that a collector condemned, and may be about to delete."""
        if not self.entries(["gc/condemned"]):
            return set()
        paths = [entry.path for entry in self.tree("gc/condemned")]
        notes = [self.read(path) or b"" for path in paths if NOTE.fullmatch(path.rpartition("/")[2])]
        return {path for data in notes for path in data.decode(errors="replace").split()}


Decide = Callable[[CommitSnapshot, bool], list[Operation]]
"""A function that returns the operations to commit. The flag is True if an earlier try may have succeeded."""


class HubStore(ObjectStore):
    """An `ObjectStore` with the files of a repository. It reads from one pinned commit. Each write is a new commit."""

    def __init__(self, hub: HubClient) -> None:
        self.hub = hub
        self.url = hub.url
        self._pin: CommitSnapshot | None = None
        self._lock = threading.RLock()

    @property
    def revision(self) -> str | None:
        return self._pin.revision if self._pin else None

    def snapshot(self) -> CommitSnapshot:
        """Return the pinned commit. If no commit is pinned, pin the newest first."""
        with self._lock:
            return self._pin or self.refresh()

    def refresh(self, path: str = IDENTITY, cached: bytes | None = None) -> CommitSnapshot:
        """Pin the newest commit and return it. The same request reads the file at `path`, for later use."""
        data, revision = self.hub.read(path, cached=cached)
        with self._lock:
            if self._pin is None or self._pin.revision != revision:
                self._pin = CommitSnapshot(self.hub, revision)
            self._pin.remember(path, data)
            return self._pin

    def transact(self, message: str, decide: Decide) -> None:
        """Commit the operations that `decide` returns. If another commit came first, decide again, up to a limit."""
        unanswered = 0
        for attempt in range(MAX_COMMIT_TRIES):
            at = self.snapshot() if attempt == 0 else self.refresh()
            try:
                operations = decide(at, unanswered > 0)
                self.hub.upload(operations)  # an error of an upload leaves no commit in doubt
            except LostRaceError:
                self._pin = None
                raise
            try:
                if operations:
                    self._pin = CommitSnapshot(self.hub, self.hub.commit(operations, message, at.revision))
                return
            except StaleParentError:
                time.sleep(random.uniform(0, min(MAX_WAIT_SECONDS, 0.01 * 2**attempt)))
            except requests.UnansweredError as error:
                unanswered += 1
                least = getattr(error.__cause__, "pause", 0.0)
                if unanswered == MAX_UNANSWERED_COMMITS or least > requests.MAX_PAUSE_SECONDS:
                    raise
                system.sleep(least + random.uniform(0, min(MAX_WAIT_SECONDS, 0.1 * 2**unanswered)))
        raise RemoteError(f"{self.url} is being changed by others without end", "run the command again")

    def get(self, key: str, cached: StoredObject | None = None) -> StoredObject | None:
        if cached and not cached.data and is_file(self.snapshot().entries([key]).get(key), cached.token):
            return cached
        with self._lock:
            data = (self._pin or self.refresh(key, cached.data or None if cached else None)).read(key)
        if cached and data == cached.data:
            return cached
        return None if data is None else StoredObject(data, token_of(data))

    def open(self, key: str, start: int = 0) -> BinaryIO | None:
        at = self.snapshot()
        return None if at.is_absent(key) else self.hub.open(key, at.revision, start)

    def has(self, keys: Iterable[str]) -> set[str]:
        return self.snapshot().blobs(keys)

    def swap(self, key: str, data: bytes, expected: str | None) -> bool:
        def decide(at: CommitSnapshot, is_doubtful: bool) -> list[Operation]:
            entry = at.entries([key]).get(key)
            if is_doubtful and is_file(entry, token_of(data)):
                return []
            if not is_file(entry, expected):
                raise LostRaceError(f"{key} changed meanwhile")
            return [CommitOperationAdd(key, data)]

        try:
            self.transact(f"Write {key}", decide)
        except LostRaceError:
            return False
        return True

    def delete(self, keys: Iterable[str]) -> None:
        paths = list(keys)
        if paths:
            self.refresh()
            self.transact(
                f"Delete {len(paths)} files" if len(paths) > 1 else f"Delete {paths[0]}",
                lambda at, _: [CommitOperationDelete(path, is_folder=False) for path in at.entries(paths)],
            )

    def list(self, prefix: str) -> Iterator[TreeFile]:
        entries = self.refresh().tree(prefix.rstrip("/"))
        return iter(sorted(entry for entry in entries if entry.path.startswith(prefix)))
