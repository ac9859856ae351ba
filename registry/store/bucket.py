"""Objects in a bucket of S3, Google Cloud Storage or Azure, or of a compatible server, through obstore.

The server must support conditional writes. A trial checks this before the first write. A blob of up to `PART_BYTES` is
created only if its key is unused. A larger blob is uploaded in parts without a condition, and may replace equal bytes.

This module, not obstore, repeats failed requests. After a repeated write, it finds out if the first try succeeded.
"""

import re
import secrets
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import cached_property, partial
from itertools import chain, islice, zip_longest
from typing import Any, BinaryIO, TypeVar

import obstore
from msgspec.structs import replace
from obstore.exceptions import BaseError

from onnxreg.registry.store import requests
from onnxreg.registry.store.bucket_url import BucketUrl
from onnxreg.registry.store.protocol import PROBE, BlobKey, ObjectStore, StoredObject, TreeFile, UnlistedError
from onnxreg.registry.store.requests import Download, ObjectAnswer, RefusedError, UnansweredError, retrying
from onnxreg.registry.store.streams import CHUNK_BYTES
from onnxreg.registry.system import POLL_SECONDS, check_stop, replace_file, run_parallel, state_directory
from onnxreg.schema.core.bounds import MAX_DOCUMENT_BYTES
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import IntegrityError, RegError, RemoteError, why

SMALL_BYTES, PART_BYTES = 2**20, 5 * 2**20
"""An object above `SMALL_BYTES` counts as large (see `MAX_BUFFERED`). Above `PART_BYTES`, it is uploaded in parts."""
MAX_PARTS = 9_000
"""Maximum number of parts of an object. S3 allows 10,000. If an object needs more, its parts are made larger."""
PARTS_AT_A_TIME = 2
MAX_BUFFERED = 1
"""Maximum number of large objects that are uploaded at the same time.

Each upload needs memory for `PARTS_AT_A_TIME` + 2 parts.
"""
READ_BYTES = 2**18
MAX_WORKERS = 16
HEADS_PER_PAGE = 8  # this many HEAD requests cost as much as one page of a listing
KEYS_PER_PAGE = 1000
WRITE_PATIENCE = 10
"""A write may take this many times `REG_READ_TIMEOUT`, because a server is silent while it receives bytes."""
FOREVER_SECONDS = 10 * 86_400
DOCUMENT_BLOCK_BYTES = 2**14
Result = TypeVar("Result")
Buffer = bytes | bytearray
Pages = list[Sequence[Any]]
GARBLED = frozenset({"BadDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch"})
"""The error codes of S3 for bytes that were changed in transit."""
PASSING_CODES = GARBLED | {
    "ConditionalRequestConflict",
    "IncompleteBody",
    "InternalError",
    "OperationAborted",
    "RequestTimeout",
    "SlowDown",
}
CHECK = "check the bucket's name, the endpoint (AWS_ENDPOINT_URL), the region (AWS_REGION) and the credentials (AWS_PROFILE)"
DENIED = "check that these credentials (AWS_PROFILE) may do this; who may not list a bucket cannot see what is absent"
UNKNOWN_HEADER = (
    "a registry needs a server that takes SHA-256 checksums (x-amz-checksum-sha256) and conditions "
    "(If-None-Match, If-Match)"
)
CAUSES = {
    "InvalidCertificate": "certificate verify failed",
    "InvalidMessage|AlertReceived": "no TLS",
    "TunnelUnsuccessful|ProxyAuthRequired": "the proxy refuses",
    "BareRedirect": "the bucket is elsewhere",
    "credential provider": "there are no credentials any more",
}
"""Errors of obstore after which another try is useless: a pattern of the error's text, and the meaning for users."""
_REASON = re.compile(r'message: "([^"]{1,100})"|\b(TimedOut|UnexpectedEof|IncompleteMessage)\b')


def reg_error(failure: str, text: str, is_write: bool) -> RegError:
    """Convert an obstore error to RefusedError (the server answered), UnansweredError (try again) or RemoteError."""
    summary, _, causes = text.partition("\n\nDebug source:")
    status = re.search(r"\bcode: (\d{3})\b", summary)
    if status is not None:
        number = int(status[1])
        code = match[1] if (match := re.search(r"<Code>(\w{1,60})</Code>", summary)) else str(number)
        match = re.search(r"<Message>([^<]*)</Message>", summary)
        detail = " ".join(match[1].split())[:200] if match else ""
        is_unknown = is_write and number in (400, 501) and "Token" not in code
        hint = UNKNOWN_HEADER if is_unknown else DENIED if code in ("403", "AccessDenied") else CHECK
        return RefusedError(f"{failure}: {code} {detail}".rstrip(), number, hint, reason=code)
    for pattern, meaning in CAUSES.items():
        if re.search(pattern, text):
            certificates = f"the certificate (AWS_CA_BUNDLE, SSL_CERT_FILE) and {requests.proxy_variables()}"
            return RemoteError(f"{failure}: {meaning}", f"{CHECK}, {certificates}")
    if "HTTP error" not in summary:
        problem = re.sub(r"\?\S+", "", " ".join(summary.split()))[:200]
        return RemoteError(f"{failure}: the answer is malformed: {problem}", "is there a proxy in between?")
    reasons = [first or second for first, second in _REASON.findall(causes)]
    reason = reasons[-1] if reasons else "the connection broke"
    if reason == "TimedOut":
        reason = "the server was silent, or took too long"
    return UnansweredError(f"{failure}: {reason}", "check the network and the endpoint (AWS_ENDPOINT_URL)")


def is_passing(error: Exception) -> bool:
    return (isinstance(error, RefusedError) and error.reason in PASSING_CODES) or requests.is_passing(error)


def is_busy(error: Exception) -> bool:
    """True if the server itself, not a gateway, refused the request, and another try may succeed."""
    return isinstance(error, RefusedError) and error.status not in (502, 504) and is_passing(error)


def is_absence(error: RefusedError) -> bool:
    """True if the server refused because the object does not exist, although the bucket exists."""
    return error.status == 404 and error.reason not in ("NoSuchBucket", "ContainerNotFound")


class BucketStore(ObjectStore):
    def __init__(self, url: str) -> None:
        self._location = BucketUrl.parse(url)
        self.url = self._location.url
        self._memory = threading.Semaphore(MAX_BUFFERED)
        self._proving, self._is_proven = threading.RLock(), False

    @cached_property
    def _settings(self) -> dict[str, Any]:
        return self._location.settings()

    def _prove(self) -> None:
        with self._proving:
            if not self._is_proven:
                self._is_proven = True  # the trial also writes
                try:
                    endpoint = self._settings.get(self._location.endpoint_setting, "")
                    prove(self, f"{replace(self._location, prefix='').url} {endpoint}")
                except BaseException:
                    self._is_proven = False
                    raise

    @cached_property
    def _reads(self) -> Any:
        limit = min(requests.setting("REG_READ_DEADLINE"), FOREVER_SECONDS)
        return self._location.client(self._settings, limit, silence=requests.timeout())

    @cached_property
    def _writes(self) -> Any:
        return self._location.client(self._settings, WRITE_PATIENCE * (requests.timeout() or FOREVER_SECONDS))

    @cached_property
    def _parts(self) -> Any:
        limit = WRITE_PATIENCE * (requests.timeout() or FOREVER_SECONDS)
        return self._location.client(self._settings, limit, retries=requests.MAX_TRIES)

    def get(self, key: str, cached: StoredObject | None = None) -> StoredObject | None:
        tag = self._version(cached.token)["e_tag"] if cached else ""

        def read() -> StoredObject:
            answer = obstore.get(self._reads, key, options={"if_none_match": tag} if tag else None)
            blocks = answer.stream(min_chunk_size=DOCUMENT_BLOCK_BYTES)
            data = requests.join_blocks(blocks, f"{key} at {self.url}", MAX_DOCUMENT_BYTES)
            is_page = answer.attributes.get("Content-Type", "").startswith("text/html")
            if is_page and data.lstrip()[:1] == b"<":
                raise self._no_server()
            return StoredObject(data, self._token(answer.meta))

        try:
            return self._ask(f"reading {key}", read)
        except RefusedError as error:
            if error.status == 304 and cached:
                return cached
            if self._is_absence(error):
                return None
            raise

    def open(self, key: str, start: int = 0) -> BinaryIO | None:
        def begin(offset: int, tag: str) -> ObjectAnswer:
            options: Any = {"range": {"offset": offset}} if offset else {}
            answer = obstore.get(self._reads, key, options=options | ({"if_match": tag} if tag else {}))
            return ObjectAnswer(iter(answer.stream(min_chunk_size=READ_BYTES)), answer.meta["e_tag"] or "")

        errors = partial(self._errors, f"reading {key}")
        return Download(begin, errors, start, is_passing).open(self._is_absence)

    def has(self, keys: Iterable[str]) -> set[str]:
        key_list = list(keys)
        most_pages = len(key_list) // HEADS_PER_PAGE
        if most_pages and all(key.startswith("blobs/") for key in key_list):
            with suppress(RefusedError, UnlistedError):
                pages = self._pages("blobs/", most_pages + 1)
                if len(pages) <= most_pages:
                    return set(key_list) & {item["path"] for page in pages for item in page}
        present = run_parallel(self.exists, key_list, MAX_WORKERS)
        return {key for key, is_present in zip(key_list, present, strict=True) if is_present}

    def exists(self, key: str) -> bool:
        try:
            self._token(self._ask(f"looking for {key}", lambda: obstore.head(self._reads, key)))
        except RefusedError as error:  # an answer to GET has the reason
            return error.status != 404 and self.open(key) is not None
        return True

    def _is_absence(self, error: RefusedError) -> bool:
        return is_absence(error) or (error.status == 403 and self._hides_absence)

    @cached_property
    def _hides_absence(self) -> bool:
        return requests.hides_absence(
            lambda key: self._ask(f"reading {key}", partial(obstore.get, self._reads, key))
        )

    def create(self, key: str, source: BinaryIO) -> bool:
        self._prove()
        head = bytearray()
        if _fill(head, source, SMALL_BYTES):
            return self._put(key, head, "create")
        while not self._memory.acquire(timeout=POLL_SECONDS):
            check_stop()
        try:
            if _fill(head, source, PART_BYTES):
                return self._put(key, head, "create")
            first: list[Buffer] = [head]
            blocks = chain(first, iter(partial(source.read, CHUNK_BYTES), b""))
            del head, first
            if self.exists(key):
                deque(blocks, 0)
                return False
            self._upload(key, blocks, getattr(source, "length", 0))
            return True
        finally:
            self._memory.release()

    def _upload(self, key: str, blocks: Iterator[Buffer], length: int) -> None:
        """Create a large object in parts. Raises IntegrityError if a part was changed in transit."""
        part = max(PART_BYTES, -(-length // MAX_PARTS))
        limits: Any = {"use_multipart": True, "chunk_size": part, "max_concurrency": PARTS_AT_A_TIME}
        try:
            with self._errors(f"uploading {key}"):
                _until_stopped(partial(obstore.put, self._parts, key, blocks, **limits))
        except RefusedError as error:
            if error.reason in GARBLED:
                raise IntegrityError(error.message) from error
            if error.reason != "NoSuchUpload" or not self.exists(key):  # only the last answer was lost
                raise

    def swap(self, key: str, data: bytes, expected: str | None) -> bool:
        self._prove()
        modes: list[Any] = ["create"]
        if expected is not None:
            version = self._version(expected)
            modes = [version, {**version, "e_tag": version["e_tag"].strip('"')}]  # Ceph wants no quotes
        current: StoredObject | None = None
        for mode in modes:
            if self._put(key, data, mode):
                return True
            current = self.get(key)
            if current is None or current.data == data or current.token != expected:
                break
        return current is not None and current.data == data

    def _put(self, key: str, data: Buffer, mode: Any) -> bool:
        """Write an object. Return False if the condition `mode` fails, possibly because an earlier try succeeded."""
        put = partial(obstore.put, self._writes, key, data, mode=mode, use_multipart=False)
        try:
            self._ask(f"writing {key}", put, is_write=True)
        except RefusedError as error:
            is_unmet = error.status in (409, 412) and not is_passing(error)
            if is_unmet or (is_absence(error) and mode != "create"):
                return False
            raise
        return True

    def delete(self, keys: Iterable[str]) -> None:
        self._prove()
        run_parallel(self._delete, keys, MAX_WORKERS)

    def _delete(self, key: str) -> None:
        # a server that sent no answer may still delete the blob, so that is an error
        passing = is_busy if BlobKey.of_path(key) else is_passing
        try:
            self._ask(f"deleting {key}", partial(obstore.delete, self._writes, key), True, passing)
        except RefusedError as error:
            if not is_absence(error):
                raise

    def list(self, prefix: str) -> Iterator[TreeFile]:
        items = chain.from_iterable(self._pages(prefix))
        files = sorted(TreeFile(item["path"], item["size"], item["e_tag"] or "") for item in items)
        for file, following in zip_longest(files, files[1:], fillvalue=TreeFile("", 0)):
            if file.size or not following.path.startswith(f"{file.path}/"):  # else a folder, as s3fs marks it
                yield file

    def _pages(self, prefix: str, limit: int | None = None) -> Pages:
        def read() -> Pages:
            pages = islice(obstore.list(self._reads, prefix or None, chunk_size=KEYS_PER_PAGE), limit)
            return [
                [item for item in page if item["path"]] for page in pages
            ]  # "": a folder made in a console

        try:
            return self._ask(f"listing {prefix or 'the registry'}", read)
        except RefusedError as error:
            if error.status != 403:
                raise
            raise UnlistedError(error.message, error.hint) from error

    def is_empty(self) -> bool:
        return all(item["path"].startswith(PROBE) for page in self._pages("", 1) for item in page)

    def _token(self, meta: Any) -> str:
        if not meta["e_tag"]:
            raise self._no_server()
        return f"{meta['version']}#{meta['e_tag']}" if self._location.scheme == "gs" else str(meta["e_tag"])

    def _version(self, token: str) -> dict[str, str]:
        if self._location.scheme != "gs":
            return {"e_tag": token}
        version, _, tag = token.partition("#")
        return {"e_tag": tag, "version": version}

    def _no_server(self) -> RemoteError:
        hint = "is there a proxy or a login page in between, or is the endpoint wrong (AWS_ENDPOINT_URL)?"
        return RemoteError(f"the server at {self.url} is not an S3 server", hint)

    def _ask(
        self,
        doing: str,
        request: Callable[[], Result],
        is_write: bool = False,
        passing: Callable[[Exception], bool] = is_passing,
    ) -> Result:
        def attempt() -> Result:
            check_stop()
            with self._errors(doing, is_write):
                return request()

        return retrying(attempt, passing)

    @contextmanager
    def _errors(self, doing: str, is_write: bool = False) -> Iterator[None]:
        try:
            yield
        except RegError:
            raise
        except (BaseError, OSError, ValueError) as error:
            failure = f"{doing} at {self.url} failed"
            if isinstance(error, BaseError) or type(error) in (FileNotFoundError, OSError):
                is_silence = "TimedOut" in str(error)
                raise reg_error(failure, str(error), is_write) from TimeoutError() if is_silence else error
            raise requests.unanswered(f"{failure}: {why(error)}", error) from error


def prove(store: ObjectStore, server: str) -> None:
    """Try conditional writes at a server. If an earlier trial succeeded, do nothing. Raises RemoteError on failure."""
    record = state_directory() / "proven" / Digest.of(server.encode()).hex[:32]
    if record.is_file():
        return
    if faults := cas_faults(store):
        raise RemoteError(
            f"{store.url} cannot be written safely: {faults[0]}",
            "two writers would overwrite each other; keep the registry where conditional writes are honoured",
        )
    with suppress(OSError):
        replace_file(record, b"")


def cas_faults(store: ObjectStore) -> list[str]:
    """Try conditional writes on a new object, and return a sentence for each fault of the store."""
    key = f"{PROBE}{secrets.token_hex(8)}"
    try:
        is_created, is_created_again = store.swap(key, b"first", None), store.swap(key, b"second", None)
        created, token = store.get(key) or (b"", "")
        is_swapped, is_swapped_again = store.swap(key, b"third", token), store.swap(key, b"fourth", token)
        swapped, _ = store.get(key) or (b"", "")
    finally:
        with suppress(*([RegError] if sys.exc_info()[1] else [])):
            store.delete([key])
    faults = {
        "an object that is not there cannot be created": not is_created,
        "an object that is there can be created again": is_created_again,
        "what was created is not what is read": created != b"first",
        "a swap with the right token is refused": not is_swapped,
        "a swap with a stale token is done": is_swapped_again,
        "what was swapped in is not what is read": swapped != b"third",
        "an object that was deleted is still there": store.get(key) is not None,
    }
    return [fault for fault, is_seen in faults.items() if is_seen]


def _until_stopped(put: Callable[[], object]) -> None:
    """Run an upload in a thread. Thus a command that is stopped does not wait for a silent server."""
    outcome, context = Future[object](), copy_context()

    def run() -> None:
        try:
            outcome.set_result(put())
        except BaseException as error:  # noqa: BLE001 -- it is raised below
            outcome.set_exception(error)

    threading.Thread(target=context.run, args=(run,), daemon=True).start()
    while wait([outcome], POLL_SECONDS).not_done:
        check_stop()
    outcome.result()


def _fill(head: bytearray, source: BinaryIO, limit: int) -> bool:
    while len(head) <= limit:
        block = source.read(CHUNK_BYTES)
        if not block:
            return True
        head += block
    return False
