"""Requests to the Hugging Face Hub through huggingface_hub. Its errors, and those of HTTP, are translated here.

A passing failure (429 with its `Retry-After`, 5xx, a broken connection) is retried here, except that of a commit:
the caller must find out if the commit was applied after all.
"""

import hashlib
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from logging import ERROR
from typing import Any, BinaryIO, TypeVar, cast
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

from onnxreg.registry.store.hub.download import Download, guard
from onnxreg.registry.store.hub.hub_errors import (
    StaleParentError,
    UnnamedCommitError,
    is_passing,
    one_line,
    pause,
    too_many,
    translated,
)
from onnxreg.registry.store.net import http_rules, requests
from onnxreg.registry.store.net.internals import enlarge_upload_blocks, is_left_out
from onnxreg.registry.store.net.requests import UnansweredError, retrying
from onnxreg.registry.store.protocol import CHUNK_BYTES, MAX_DOCUMENT_BYTES
from onnxreg.schema.core.errors import HostError, InputError, IntegrityError, RegError, RemoteError, why

LIBRARY_NAME = "onnxreg"
MAX_PATHS = 1000
"""The Hub takes no more paths in one request."""
MAX_SILENCE_SECONDS = 120.0
"""Seconds without a byte after which a request counts as lost."""
Operation = CommitOperationAdd | CommitOperationCopy | CommitOperationDelete
Result = TypeVar("Result")
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
        if match is None:
            raise InputError(f"not a repository on the Hugging Face Hub: {url[:200]!r}", hint)
        try:
            validate_repo_id(match["repo"])
        except HFValidationError as error:
            raise InputError(f"the Hugging Face Hub has no such name: {one_line(error)}", hint) from error
        if match["repo"].partition("/")[0] in ("models", "datasets", "spaces", "buckets"):
            raise InputError(f"{url[:200]!r} names no repository of an organisation or user", hint)
        repo_type = "dataset" if match["type"] == "datasets/" else "model"
        return cls(match["repo"], repo_type, match["revision"] or constants.DEFAULT_REVISION)

    @property
    def url(self) -> str:
        kind = "datasets/" if self.repo_type == "dataset" else ""
        branch = "" if self.revision == constants.DEFAULT_REVISION else f"@{self.revision}"
        return f"hf://{kind}{self.repo}{branch}"


@dataclass(frozen=True, slots=True)
class HubFile:
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
        self.repo: dict[str, Any] = {"repo_id": location.repo, "repo_type": location.repo_type}
        _quieten()
        enlarge_upload_blocks(CHUNK_BYTES)

    @property
    def host(self) -> str:
        return urlsplit(self.api.endpoint).netloc

    def file_url(self, path: str, revision: str | None = None) -> str:
        """The URL from which any HTTP client can fetch a file."""
        return hf_hub_url(
            self.location.repo,
            path,
            repo_type=self.location.repo_type,
            revision=revision or self.location.revision,
            endpoint=self.api.endpoint,
        )

    def read(
        self, path: str, revision: str | None = None, cached: bytes | None = None
    ) -> tuple[bytes | None, str]:
        """Read a small file (None if there is none); returns also the commit that it was read from: `revision`, if given.

        The Hub need not send the bytes again if they are still those in `cached`.
        """
        download, commit = self._begin(path, revision, cached=cached)
        if download is None:
            return None, commit
        with download:
            if download.unchanged:
                return cached, commit
            data = io.BufferedReader(download, CHUNK_BYTES).read(MAX_DOCUMENT_BYTES + 1)
        if len(data) > MAX_DOCUMENT_BYTES:
            raise IntegrityError(f"{path} of {self.location.url} is larger than {MAX_DOCUMENT_BYTES} bytes")
        return data, commit

    def open(self, path: str, revision: str | None = None, start: int = 0) -> tuple[BinaryIO | None, str]:
        """Open a stream over a file from an offset (None if there is none); returns also the commit it is read from."""
        download, commit = self._begin(path, revision, start)
        stream = None if download is None else cast(BinaryIO, io.BufferedReader(download, CHUNK_BYTES))
        return stream, commit

    def _begin(
        self, path: str, revision: str | None, start: int = 0, cached: bytes | None = None
    ) -> tuple[Download | None, str]:
        errors = partial(self.errors, f"reading {path}")
        with errors():
            try:
                ask = partial(self.get, path)
                download = Download(ask, errors, revision or self.location.revision, start, cached)
                return download, download.commit
            except RemoteEntryNotFoundError as error:
                commit = error.response.headers.get(constants.HUGGINGFACE_HEADER_X_REPO_COMMIT) or revision
                if commit:
                    return None, commit
            except UnnamedCommitError:
                pass
            return self._begin(path, self.head(), start)

    def head(self) -> str:
        """The newest commit."""
        with requests.reading():
            info = self._again(lambda: self.api.repo_info(**self.repo, revision=self.location.revision))
        return str(info.sha)

    def get(self, path: str, revision: str, offset: int, cached: bytes | None = None) -> httpx2.Response:
        """Begin to receive a file, its bytes from an offset on (or all of it: then the status is 200).

        With status 304 nothing is sent, since the file is `cached`.
        """
        headers = {**build_hf_headers(library_name=LIBRARY_NAME), "Accept-Encoding": "identity"}
        if cached is not None:
            headers["If-None-Match"] = f'"{git_oid(cached)}"'
        if offset:
            headers["Range"] = f"bytes={offset}-"
        url = self.file_url(path, revision)
        timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT

        def attempt() -> httpx2.Response:
            client = get_session()
            request = client.build_request("GET", url, headers=headers, timeout=timeout)
            response = client.send(request, stream=True, follow_redirects=True)
            if response.status_code == 304:
                return response
            try:
                hf_raise_for_status(response)
            except BaseException:
                response.close()
                raise
            return response

        with requests.reading():
            return self._again(attempt)

    def entries(self, revision: str, paths: Sequence[str]) -> list[HubFile]:
        """Those of these files and folders that a commit has. One request for a thousand."""
        files: list[HubFile] = []
        with self.errors("looking for files"), requests.reading():
            for start in range(0, len(paths), MAX_PATHS):
                part = list(paths[start : start + MAX_PATHS])
                answer = self._again(
                    lambda part=part: self.api.get_paths_info(paths=part, revision=revision, **self.repo)  # type: ignore[misc]
                )
                files += map(HubFile.of, answer)
        return files

    def tree(self, revision: str, folder: str = "", recursive: bool = True) -> list[HubFile]:
        """List a folder of a commit; empty if there is no such folder."""
        with self.errors("listing files"), requests.reading():
            try:
                answer = self.api.list_repo_tree(
                    path_in_repo=folder or None, recursive=recursive, revision=revision, **self.repo
                )
                return list(map(HubFile.of, answer))
            except RemoteEntryNotFoundError:
                return []

    def create(self, private: bool | None) -> None:
        """Make the repository; nothing happens if it is there."""
        with self.errors("making the repository"):
            self._again(lambda: self.api.create_repo(private=private, exist_ok=True, **self.repo))

    def commit(self, operations: list[Operation], message: str, parent: str) -> str:
        """Upload what the operations add, then apply all of them in one commit upon `parent`; returns its id.

        StaleParentError if it was not applied, UnansweredError if nobody knows.
        """
        additions = [operation for operation in operations if isinstance(operation, CommitOperationAdd)]
        with self.errors("uploading"):
            for part in _without_repeats(additions):
                self.api.preupload_lfs_files(
                    additions=part,
                    revision=self.location.revision,
                    free_memory=False,
                    gitignore_content="",
                    **self.repo,
                )
            self._refuse_ignored(additions)
        with self.errors("committing"):
            try:
                info = self.api.create_commit(
                    operations=operations,
                    commit_message=message,
                    parent_commit=parent,
                    revision=self.location.revision,
                    **self.repo,
                )
            except (HfHubHTTPError, httpx2.TransportError, ValueError, KeyError) as error:
                self._refused(error)
                raise
        return str(info.oid)

    def _refuse_ignored(self, additions: Iterable[CommitOperationAdd]) -> None:
        """Refuse files that the repository's .gitignore hides: the client would leave them out without an error."""
        for addition in additions:
            if is_left_out(addition):
                raise RemoteError(
                    f"the .gitignore of {self.location.url} hides {addition.path_in_repo}",
                    "remove that rule there, then push again",
                )

    def _refused(self, error: Exception) -> None:
        """Classify a commit that failed: raise if it may have been applied; return if it was refused for good."""
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
    def errors(self, operation: str) -> Iterator[None]:
        """Turn what huggingface_hub raises into an error that names the operation and the place; see `translated`."""
        try:
            _bound(get_session())
        except (ImportError, ValueError, httpx2.InvalidURL) as error:
            proxies = http_rules.proxy_variables()
            raise HostError(
                f"{operation}: {self.location.url}: {one_line(error)}",
                f"write http://HOST:PORT in {proxies}, unset it, or for SOCKS: pip install 'httpx2[socks]'",
            ) from error
        except OSError as error:
            raise HostError(
                f"the trusted certificates cannot be read: {why(error)}", "check the file in SSL_CERT_FILE"
            ) from error
        try:
            yield
        except (RegError, RemoteEntryNotFoundError, StaleParentError):
            raise
        except (httpx2.HTTPError, OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
            raise translated(error, f"{operation}: {self.location.url}", self.location.revision) from error


def _without_repeats(additions: Iterable[CommitOperationAdd]) -> list[list[CommitOperationAdd]]:
    """The additions, then those that repeat the bytes of another one: the Hub has these by then."""
    first: dict[bytes, CommitOperationAdd] = {}
    repeats = []
    for addition in additions:
        digest = addition.upload_info.sha256
        if digest is None or first.setdefault(digest, addition) is not addition:
            repeats.append(addition)
    unknown = [addition for addition in repeats if addition.upload_info.sha256 is None]
    known_repeats = [addition for addition in repeats if addition.upload_info.sha256 is not None]
    return [part for part in ([*first.values(), *unknown], known_repeats) if part]


def _bound(client: httpx2.Client) -> None:
    """Wait no longer for a Hub that is silent or slow; the client itself would wait for ever."""
    guard(client)
    if client.timeout == httpx2.Timeout(None):
        client.timeout = httpx2.Timeout(MAX_SILENCE_SECONDS)


def _quieten() -> None:
    """Silence the client's bars and warnings, which name signed addresses, unless its variables ask for them."""
    if "HF_HUB_DISABLE_PROGRESS_BARS" not in os.environ:
        disable_progress_bars()
    if not {"HF_HUB_VERBOSITY", "HF_DEBUG"} & os.environ.keys():
        logging.set_verbosity(ERROR)


def git_oid(data: bytes) -> str:
    """The git object id of a file with these bytes."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
