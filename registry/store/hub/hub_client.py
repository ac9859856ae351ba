"""Requests to one repository on the Hugging Face Hub through huggingface_hub, and its errors as ours.

A passing failure (429 with its `Retry-After`, 5xx, a broken connection) is retried here, except that of a commit: the
caller must find out if the commit was applied after all. Nothing that the Hub names becomes a path on this machine.
"""

import hashlib
import io
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from logging import ERROR
from typing import Any, BinaryIO, NamedTuple, TypeVar, cast
from urllib.parse import urlsplit

import httpx2
from huggingface_hub import (
    CommitOperationAdd,
    CommitOperationCopy,
    CommitOperationDelete,
    HfApi,
    constants,
    hf_hub_url,
)
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, RemoteEntryNotFoundError
from huggingface_hub.hf_api import RepoFile, RepoFolder
from huggingface_hub.utils import (  # type: ignore[attr-defined]
    build_hf_headers,
    disable_progress_bars,
    get_session,
    hf_raise_for_status,
    logging,
    validate_repo_id,
)

from onnxreg.registry.store.hub.hub_errors import (
    StaleParentError,
    is_passing,
    one_line,
    pause,
    too_many,
    translated,
)
from onnxreg.registry.store.net import http_rules, requests
from onnxreg.registry.store.net.requests import Meter, UnansweredError, retrying
from onnxreg.registry.store.net.waits import FileBudget
from onnxreg.registry.store.protocol import CHUNK_BYTES, MAX_DOCUMENT_BYTES
from onnxreg.schema.core.errors import HostError, InputError, IntegrityError, RegError, RemoteError, why

LIBRARY_NAME = "onnxreg"
MAX_PATHS = 1000
"""The Hub takes no more paths in one request."""
MAX_LISTED_FILES = 1_000_000
"""Of one commit."""
MAX_SILENCE_SECONDS = 120.0
"""Seconds without a byte after which a request counts as lost."""
BLOCK_BYTES = 2**16
"""Bytes of one try: a server that sends a few, and is asked again, is as slow as before."""
Operation = CommitOperationAdd | CommitOperationCopy | CommitOperationDelete
Result = TypeVar("Result")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_URL = re.compile(
    r"hf://(?P<type>models/|datasets/)?(?P<repo>[^/@?#]+/[^/@?#]+)(?:@(?P<revision>[^@?#]+))?/?", re.DOTALL
)


@dataclass(frozen=True)
class HubUrl:
    """A repository and the branch (for reading: any revision) that holds the registry."""

    repo: str
    repo_type: str = "model"
    revision: str = constants.DEFAULT_REVISION

    @classmethod
    def parse(cls, url: str) -> "HubUrl":
        """hf://[models/ | datasets/]ORG/NAME[@REVISION]; InputError for anything else."""
        hint = "write hf://ORG/NAME or hf://ORG/NAME@BRANCH; a registry fills its repository"
        match = _URL.fullmatch(url)
        if match is None or match["repo"].partition("/")[0] in ("models", "datasets", "spaces", "buckets"):
            raise InputError(f"not a repository on the Hugging Face Hub: {url[:200]!r}", hint)
        try:
            validate_repo_id(match["repo"])
        except HFValidationError as error:
            raise InputError(f"the Hugging Face Hub has no such name: {one_line(error)}", hint) from error
        repo_type = "dataset" if match["type"] == "datasets/" else "model"
        return cls(match["repo"], repo_type, match["revision"] or constants.DEFAULT_REVISION)

    @property
    def url(self) -> str:
        kind = "datasets/" if self.repo_type == "dataset" else ""
        branch = "" if self.revision == constants.DEFAULT_REVISION else f"@{self.revision}"
        return f"hf://{kind}{self.repo}{branch}"


class HubFile(NamedTuple):
    """A file of a commit, or a folder: then `size` is None.

    `oid` is the SHA-256 of a file in LFS, else the git object id.
    """

    path: str
    size: int | None
    oid: str

    @classmethod
    def of(cls, entry: RepoFile | RepoFolder) -> "HubFile":
        if isinstance(entry, RepoFolder):
            return cls(entry.path, None, entry.tree_id)
        return cls(entry.path, entry.size, entry.lfs.sha256 if entry.lfs else entry.blob_id)


class HubClient:
    """One repository on the Hub. `HF_ENDPOINT`, `HF_TOKEN` and the token of `hf auth login` count as they do for `hf`."""

    def __init__(self, location: HubUrl) -> None:
        self.location = location
        endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or None
        self.api = HfApi(endpoint=endpoint, library_name=LIBRARY_NAME)
        self.host = urlsplit(self.api.endpoint).netloc
        self._repo: dict[str, Any] = {"repo_id": location.repo, "repo_type": location.repo_type}
        if "HF_HUB_DISABLE_PROGRESS_BARS" not in os.environ:
            disable_progress_bars()
        if not {"HF_HUB_VERBOSITY", "HF_DEBUG"} & os.environ.keys():
            logging.set_verbosity(ERROR)  # warnings name signed addresses

    def file_url(self, path: str, revision: str | None = None) -> str:
        """The URL from which any HTTP client can fetch a file."""
        return hf_hub_url(
            self.location.repo,
            path,
            repo_type=self.location.repo_type,
            revision=revision or self.location.revision,
            endpoint=self.api.endpoint,
        )

    def head(self) -> str:
        """The newest commit."""
        with self._reading("looking for the newest commit"):
            info = self._again(lambda: self.api.repo_info(**self._repo, revision=self.location.revision))
            if not _COMMIT.fullmatch(str(info.sha)):
                raise ValueError("an answer without a commit")
        return str(info.sha)

    def read(
        self, path: str, revision: str | None = None, cached: bytes | None = None
    ) -> tuple[bytes | None, str]:
        """Read a small file (None if there is none); returns also the commit that it was read from: `revision`, if given.

        The Hub need not send the bytes again if they are still those in `cached`.
        """
        response, commit = self._begin(path, revision, 0, cached)
        if response is None or response.status_code == 304:
            return (None if response is None else cached), commit
        with HubStream(self, path, commit, response) as stream:
            data = io.BufferedReader(stream, CHUNK_BYTES).read(MAX_DOCUMENT_BYTES + 1)
        if len(data) > MAX_DOCUMENT_BYTES:
            raise IntegrityError(f"{path} of {self.location.url} is larger than {MAX_DOCUMENT_BYTES} bytes")
        return data, commit

    def open(self, path: str, revision: str, start: int = 0) -> BinaryIO | None:
        """Open a stream over a file of a commit from an offset; None if there is none."""
        response, commit = self._begin(path, revision, start)
        if response is None:
            return None
        return cast(BinaryIO, io.BufferedReader(HubStream(self, path, commit, response, start), CHUNK_BYTES))

    def _begin(
        self, path: str, revision: str | None, start: int, cached: bytes | None = None
    ) -> tuple[httpx2.Response | None, str]:
        """The answer to a request for a file (None if there is none), and the commit that it is of.

        Of an answer without content that names no commit, the newest one may be another by now: it is asked for again.
        """
        with self._reading(f"reading {path}"):
            try:
                response, is_absent = (
                    self.request(path, revision or self.location.revision, start, cached),
                    False,
                )
            except RemoteEntryNotFoundError as error:
                response, is_absent = error.response, True
            header = constants.HUGGINGFACE_HEADER_X_REPO_COMMIT
            names = (item.headers.get(header, "") for item in (*response.history, response))
            commit = next(filter(_COMMIT.fullmatch, names), revision if is_absent else None)
            if commit is None and not is_absent:
                response.close()
                if response.status_code != 304:
                    raise ValueError("an answer without a commit")
        if commit is None:
            return self._begin(path, self.head(), start)
        return None if is_absent else response, commit

    def request(
        self, path: str, revision: str, start: int = 0, cached: bytes | None = None
    ) -> httpx2.Response:
        """Begin to receive a file, its bytes from an offset on (or all of it: then the status is 200).

        With status 304 nothing is sent, since the file is `cached`.
        """
        headers = {**build_hf_headers(library_name=LIBRARY_NAME), "Accept-Encoding": "identity"}
        headers |= {"If-None-Match": f'"{git_oid(cached)}"'} if cached is not None else {}
        headers |= {"Range": f"bytes={start}-"} if start else {}
        url, timeout = self.file_url(path, revision), Meter().allowed(constants.HF_HUB_DOWNLOAD_TIMEOUT)

        def attempt() -> httpx2.Response:
            client = get_session()
            request = client.build_request("GET", url, headers=headers, timeout=timeout)
            response = client.send(request, stream=True, follow_redirects=True)
            try:
                if response.status_code != 304:
                    hf_raise_for_status(response)
            except BaseException:
                response.close()
                raise
            return response

        return self._again(attempt)

    def entries(self, revision: str, paths: Sequence[str]) -> list[HubFile]:
        """Those of these files and folders that a commit has. One request for a thousand."""
        files: list[HubFile] = []
        for start in range(0, len(paths), MAX_PATHS):
            part = {"paths": list(paths[start : start + MAX_PATHS]), "revision": revision, **self._repo}
            with self._reading("looking for files"):
                files += map(HubFile.of, self._again(partial(self.api.get_paths_info, **part)))
        return files

    def tree(self, revision: str, folder: str = "", recursive: bool = True) -> list[HubFile]:
        """List a folder of a commit; empty if there is no such folder."""
        address = {"path_in_repo": folder or None, "revision": revision, **self._repo}
        with self._reading("listing files"):
            try:
                entries = self.api.list_repo_tree(recursive=recursive, **address)
                files = [HubFile.of(entry) for entry in islice(entries, MAX_LISTED_FILES + 1)]
            except RemoteEntryNotFoundError:
                return []
        if len(files) > MAX_LISTED_FILES:
            raise RemoteError(
                f"{self.location.url} lists more than {MAX_LISTED_FILES:,} files", "check HF_ENDPOINT"
            )
        return files

    def create(self, private: bool | None) -> None:
        """Make the repository; nothing happens if it is there."""
        with self.errors("making the repository"):
            self._again(lambda: self.api.create_repo(private=private, exist_ok=True, **self._repo))

    def commit(self, operations: list[Operation], message: str, parent: str) -> str:
        """Upload what the operations add, then apply all of them in one commit upon `parent`; returns its id.

        Bytes that several files have are uploaded once: the Hub has them when the others are looked at. A .gitignore of
        the repository hides nothing. StaleParentError if it was not applied, UnansweredError if nobody knows.
        """
        additions = [operation for operation in operations if isinstance(operation, CommitOperationAdd)]
        first = {addition.upload_info.sha256: addition for addition in reversed(additions)}.values()
        repeats = [addition for addition in additions if all(addition is not other for other in first)]
        address = {"revision": self.location.revision, **self._repo}
        with self.errors("uploading"):
            for part in filter(None, ([*first], repeats)):
                self.api.preupload_lfs_files(
                    additions=part, free_memory=False, gitignore_content="", **address
                )
        with self.errors("committing"):
            try:
                info = self.api.create_commit(
                    operations=operations, commit_message=message, parent_commit=parent, **address
                )
            except (HfHubHTTPError, httpx2.TransportError, ValueError, KeyError) as error:
                self._check_refused(error)
                raise
        return str(info.oid)

    def _check_refused(self, error: Exception) -> None:
        """Raise if a commit that failed may have been applied, or may be tried again; return if it was refused for good."""
        if isinstance(error, HfHubHTTPError):
            status = error.response.status_code
            if status in (409, 412) or isinstance(error, RemoteEntryNotFoundError):
                raise StaleParentError from error
            if status == 429:
                raise UnansweredError(*too_many(f"committing: {self.location.url}", error)) from error
            if status != 408 and status < 500:
                return
        elif "README.md" in str(error):
            raise RemoteError(
                f"the Hub refuses the README.md of {self.location.url}: {one_line(error)}",
                "repair the metadata between its first two lines of dashes, then push again",
            ) from error
        raise UnansweredError(
            f"{self.location.url} did not say whether it took a commit: {one_line(error)}",
            "run the command again; what is there already is not sent again",
        ) from error

    def _again(self, attempt: Callable[[], Result]) -> Result:
        return retrying(attempt, is_passing, self.host, pause)

    @contextmanager
    def _reading(self, operation: str) -> Iterator[None]:
        with self.errors(operation), requests.reading():
            yield

    @contextmanager
    def errors(self, operation: str) -> Iterator[None]:
        """Turn what huggingface_hub raises into an error that names the operation and the repository; see `translated`.

        Its client waits no longer than the limit for a silent Hub, and follows redirects by our rules.
        """
        try:
            client = get_session()
        except (ImportError, ValueError, httpx2.InvalidURL) as error:
            raise HostError(
                f"{operation}: {self.location.url}: {one_line(error)}",
                f"write http://HOST:PORT in {http_rules.proxy_variables()}, unset it, or for SOCKS: pip install 'httpx2[socks]'",
            ) from error
        except OSError as error:
            raise HostError(
                f"the trusted certificates cannot be read: {why(error)}", "check the file in SSL_CERT_FILE"
            ) from error
        if _check_redirect not in (hooks := client.event_hooks)["response"]:
            client.event_hooks = {**hooks, "response": [*hooks["response"], _check_redirect]}
        if client.timeout == httpx2.Timeout(None):
            client.timeout = httpx2.Timeout(MAX_SILENCE_SECONDS)
        try:
            yield
        except (RegError, StaleParentError):
            raise
        except (httpx2.HTTPError, OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
            raise translated(error, f"{operation}: {self.location.url}", self.location.revision) from error


def _check_redirect(response: httpx2.Response) -> None:
    """RemoteError if an answer redirects to a forbidden place, or sends a body without end."""
    if response.has_redirect_location:
        url, size = str(response.request.url), 0
        http_rules.target(url, response.headers["Location"])
        stream = response.stream
        assert isinstance(stream, httpx2.SyncByteStream)
        with closing(stream):
            for part in _paced(stream):
                size += len(part)
                http_rules.check_size(url, size)
        response.stream = httpx2.ByteStream(b"")


def _paced(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The blocks of an answer. TimeoutError if they come slower than the present read allows."""
    meter, remaining = Meter(), iter(blocks)
    while True:
        meter.allowed(None)
        began = time.monotonic()
        data = next(remaining, b"")
        meter.count(len(data), began)
        if not data:
            return
        yield data


class HubStream(io.RawIOBase):
    """A file's bytes from an offset, all of one commit. If the connection breaks, the rest is requested."""

    def __init__(
        self, hub: HubClient, path: str, commit: str, response: httpx2.Response, offset: int = 0
    ) -> None:
        super().__init__()
        self._hub = hub
        self._path = path
        self._commit = commit
        self._offset = offset
        self._budget = FileBudget.current()
        self._block = bytearray()
        with hub.errors(f"reading {path}"):
            self._use(response)

    def _use(self, response: httpx2.Response) -> None:
        """Receive the bytes from the offset on. A Hub that ignores the range sends all of them."""
        self._response = response
        if response.headers.get("Content-Encoding", "identity").lower() not in ("", "identity"):
            raise ValueError("a compressed answer, which was not asked for")
        self._blocks: Iterator[bytes] | None = _paced(response.iter_raw())
        self._skip = self._offset if response.status_code == 200 else 0
        if response.status_code == 206:
            first, _, _ = http_rules.content_range(response.headers.get("Content-Range", ""))
            if first != self._offset:
                raise ValueError("another range than the one that was asked for")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        if not self._block:
            with self._hub.errors(f"reading {self._path}"), requests.reading(self._budget):
                retrying(self._fill, self._may_resume, self._hub.host)
        target = memoryview(buffer).cast("B")
        size = min(len(target), len(self._block))
        target[:size] = self._block[:size]
        del self._block[:size]
        return size

    def _fill(self) -> None:
        """Receive the next block, or the rest of it if the connection broke within."""
        if self._blocks is None:
            self._use(self._hub.request(self._path, self._commit, self._offset))
        blocks, self._blocks = self._blocks, None
        while len(self._block) < BLOCK_BYTES and (data := next(blocks or iter(()), b"")):
            skipped = min(self._skip, len(data))
            self._skip -= skipped
            self._block += data[skipped:]
            self._offset += len(data) - skipped
        self._blocks = blocks

    def _may_resume(self, error: Exception) -> bool:
        self._response.close()
        return isinstance(error, httpx2.TransportError | TimeoutError)

    def close(self) -> None:
        if not self.closed:
            self._response.close()
        super().close()


def git_oid(data: bytes) -> str:
    """The git object id of a file with these bytes."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
