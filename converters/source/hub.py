"""Download files of a repository on the Hugging Face Hub, and keep them by digest in onnxreg's folder below HF_HOME.

| path below `onnxreg/ENDPOINT/models--ORG--NAME` | content |
|---|---|
| `blobs/DIGEST` | a file; DIGEST is its SHA-256 if the file is in LFS, else its git object id |
| `snapshots/COMMIT/PATH` | the same file, as a hard link if possible |
"""

import hashlib
import io
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

from filelock import FileLock

from onnxreg.converters.source.source_files import Location, digest_file, link_or_copy
from onnxreg.schema.core.errors import (
    HostError,
    InputError,
    IntegrityError,
    NotFoundError,
    RegError,
    RemoteError,
    about,
    hub_library,
    nearest,
)
from onnxreg.schema.core.ref import check_distinct, check_path

MAX_FILES = 100_000
WORKERS = 8
_COMMIT = re.compile(r"[0-9a-f]{40}")
_DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def fetch(name: str, revision: str | None, choose: Callable[[Iterable[str]], Iterable[str]]) -> Location:
    """Download the files of a repository that `choose` selects from all its paths.

    Raises NotFoundError if the repository or revision does not exist, RemoteError if the Hub fails, IntegrityError if a
    file differs from the Hub's list, and InputError if a path is not allowed here.
    """
    with hub_library("loading a model from the Hub"):
        from huggingface_hub import constants

        _ = urlsplit(constants.ENDPOINT).port
    with _translated(name, revision):
        endpoint = re.sub(r"[^\w.-]+", "_", constants.ENDPOINT.partition("://")[2])
        root = Path(constants.HF_HOME, "onnxreg", endpoint, f"models--{name.replace('/', '--')}")
        commit, files = _list(name, revision)
        chosen = sorted(choose(files))
        with about(f"{name} has a file that is not taken", hint="rename it in the repository"):
            check_distinct(map(check_path, chosen))
        blobs, snapshot = root / "blobs", root / "snapshots" / commit
        for folder in (blobs, snapshot):
            folder.mkdir(parents=True, exist_ok=True)

        def store(path: str) -> None:
            digest, size = files[path]
            blob, target = blobs / digest, snapshot / path
            with FileLock(blobs / f"{digest}.lock", fallback_to_soft=False):
                if not _has_digest(blob, digest):
                    _download(name, commit, path, size, blob)
            target.parent.mkdir(parents=True, exist_ok=True)
            if not (target.exists() and target.samefile(blob)):
                with TemporaryDirectory(dir=target.parent, prefix=".") as folder:
                    link_or_copy(blob, new := Path(folder, "new"))
                    new.replace(target)

        with ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(store, chosen))
        return Location(snapshot, name, commit)


@contextmanager
def _translated(name: str, revision: str | None) -> Iterator[None]:
    """A context that turns errors of huggingface_hub and of the network into a RegError."""
    import httpx2
    from huggingface_hub import errors

    network = "check the network, the proxy, HF_ENDPOINT, the token (hf auth login), the disk, SSL_CERT_FILE"
    gated = "ask for access on its page, then log in: hf auth login, or set HF_TOKEN"
    unreachable = httpx2.ConnectError, httpx2.TimeoutException, errors.OfflineModeIsEnabled
    try:
        yield
    except RegError:
        raise
    except Exception as error:
        # the words of the Hub, the system or TLS, without addresses, which may be signed
        text = getattr(error, "server_message", None) or getattr(error, "strerror", None) or str(error)
        words = re.sub(r"https?://\S+", "...", text.strip().partition("\n")[0])[:200] or type(error).__name__
        status = getattr(getattr(error, "response", None), "status_code", None)
        words = f"{words} ({status})" if status else words
        folders = nearest(name, (path.name for path in Path().glob("*/")), most=1)
        near = f"did you mean the directory {folders[0]}? " if folders else ""
        foreign = f"{name} could not be fetched: the answer is not the Hub's ({type(error).__name__})"
        table: tuple[tuple[Any, type[RegError], str, str], ...] = (
            (errors.HFValidationError, InputError, f"{name} cannot be a repository on the Hub", "check its name"),
            (unreachable, RemoteError, f"there is no directory {name}, and the Hub cannot be reached: {words}", near.rstrip() or network),
            (errors.GatedRepoError, RemoteError, f"{name} is gated", gated),
            (errors.RevisionNotFoundError, NotFoundError, f"{name} has no revision {revision} on the Hub", "check the branch, tag or commit"),
            (errors.RepositoryNotFoundError, NotFoundError, f"the Hub has no repository {name}", f"{near}check its name, or its path if it is a directory; a private model needs HF_TOKEN"),
            ((ImportError, httpx2.InvalidURL), HostError, f"{name} is not fetched: the address of the Hub or of a proxy is not taken: {words}", "write http://HOST:PORT in HF_ENDPOINT, HTTPS_PROXY and ALL_PROXY, or unset them"),
            ((errors.HTTPError, OSError), RemoteError, f"{name} could not be fetched from the Hub: {words}", network),  # type: ignore[attr-defined]
            ((ValueError, TypeError, KeyError, AttributeError, RecursionError), RemoteError, foreign, network),
        )  # fmt: skip
        for kinds, family, message, hint in table:
            if isinstance(error, kinds):
                raise family(message, hint) from error
        raise


def _list(name: str, revision: str | None) -> tuple[str, dict[str, tuple[str, int]]]:
    """Return a revision's commit, and the (digest, size) of each path. Raise RemoteError if the answer is malformed."""
    from huggingface_hub import HfApi, constants
    from huggingface_hub.hf_api import RepoFile

    def malformed(content: str) -> RemoteError:
        hint = "check HF_ENDPOINT: the Hub itself does not do this"
        return RemoteError(f"the listing of {name} names {content}", hint)

    api = HfApi(endpoint=constants.ENDPOINT)
    commit = str(api.model_info(name, revision=revision, expand=["sha"]).sha)
    if not _COMMIT.fullmatch(commit):
        raise malformed(f"a commit {commit[:80]!r}")
    files: dict[str, tuple[str, int]] = {}
    for count, entry in enumerate(api.list_repo_tree(name, recursive=True, revision=commit)):
        if isinstance(entry, RepoFile):
            stored = (entry.lfs.sha256, entry.lfs.size) if entry.lfs else (entry.blob_id, entry.size)
            digest, size = files[entry.path] = stored
            if not _DIGEST.fullmatch(digest) or not isinstance(size, int):
                raise malformed(f"a file with the digest {digest[:80]!r}")
        if count >= MAX_FILES:  # a page may name itself as the next page
            raise malformed(f"more than {MAX_FILES:,} files")
    return commit, files


def _has_digest(file: Path, digest: str) -> bool:
    if not file.is_file():
        return False
    if len(digest) == 64:
        return digest_file(file).hex == digest
    head = b"blob %d\0" % file.stat().st_size
    with file.open("rb") as data:
        return hashlib.file_digest(data, lambda: hashlib.sha1(head)).hexdigest() == digest


class _Bounded(io.BufferedWriter):
    limit = 0

    def write(self, data: Any, /) -> int:
        if self.tell() + len(data) > self.limit:
            raise IntegrityError(f"the Hub sends more than the {self.limit:,} bytes that it lists")
        return super().write(data)


def _download(name: str, commit: str, path: str, size: int, blob: Path) -> None:
    """Download a file to `blob`, or continue an earlier download. Raise IntegrityError if the digest is wrong."""
    from huggingface_hub import hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    part, url = blob.with_suffix(".part"), hf_hub_url(name, path, revision=commit)
    try:
        with _Bounded(io.FileIO(part, "ab")) as file:
            file.limit = size
            if file.tell() > size:
                file.seek(file.truncate(0))
            headers, start = build_hf_headers(), file.tell()
            http_get(
                url, file, resume_size=start, headers=headers, expected_size=size, displayed_filename=path
            )
        if not _has_digest(part, blob.name):
            raise IntegrityError(f"{path}: the Hub sends other bytes than it lists", "run the command again")
    except IntegrityError:
        part.unlink()
        raise
    part.replace(blob)
