"""Registries on other file systems for which fsspec has a driver: `sftp://`, `smb://`, ...

    sftp://user@host/path?single_writer=yes

fsspec has no compare-and-swap, so two writers would overwrite each other's changes unnoticed. Therefore such a registry
is read-only by default. With `?single_writer=yes` in the URL, it can be written: the user promises that nobody else
writes at the same time. The driver finds the credentials (key files, agents, environment variables).
"""

import io
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from tempfile import SpooledTemporaryFile
from typing import Any, BinaryIO, cast
from urllib.parse import urlsplit

from onnxreg.registry.store import protocol, streams
from onnxreg.schema.core.bounds import MAX_DOCUMENT_BYTES
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import HostError, InputError, RegError, RemoteError, missing_extra, why

PROTOCOLS = ("sftp", "smb", "ssh")
"""The supported schemes. Their drivers can rename a file, which every write needs."""
OPTION = "single_writer"


class FileStore(protocol.ObjectStore):
    """An `ObjectStore` on a file system of fsspec, for one writing process.

    `connect` is called at the first use. It returns the file system, and the path of the registry in it.
    """

    def __init__(self, connect: Callable[[], tuple[Any, str]], url: str, single_writer: bool = False) -> None:
        self.url = url
        self._connect = cache(connect)
        self._single_writer = single_writer
        self._lock = threading.Lock()

    @property
    def _files(self) -> Any:
        return self._connect()[0]

    def _path(self, key: str) -> str:
        return f"{self._connect()[1]}/{key}"

    def get(self, key: str, cached: protocol.StoredObject | None = None) -> protocol.StoredObject | None:
        with self._asking(f"reading {key}"):
            try:
                data: bytes = self._files.cat_file(self._path(key), end=MAX_DOCUMENT_BYTES + 1)
            except FileNotFoundError:
                return None
            if len(data) > MAX_DOCUMENT_BYTES:
                raise RemoteError(f"{key} at {self.url} has more than {MAX_DOCUMENT_BYTES:,} bytes")
        return protocol.StoredObject(data, Digest.of(data).hex)

    def open(self, key: str, start: int = 0) -> BinaryIO | None:
        asking = partial(self._asking, f"reading {key}")
        with asking():
            try:
                stream = self._files.open(self._path(key), "rb")
                stream.seek(start)
            except FileNotFoundError:
                return None

        def next_block() -> bytes:
            with asking():
                return bytes(stream.read(streams.CHUNK_BYTES))

        return cast(BinaryIO, io.BufferedReader(streams.BlockStream(next_block, stream.close)))

    def exists(self, key: str) -> bool:
        with self._asking(f"looking for {key}"):
            try:
                return bool(self._files.info(self._path(key))["type"] == "file")  # isfile() hides every error
            except FileNotFoundError:
                return False

    def create(self, key: str, source: BinaryIO) -> bool:
        with SpooledTemporaryFile(protocol.SPOOL_BYTES) as spool:
            streams.pump(source, cast(BinaryIO, spool))
            with self._writing(f"writing {key}"):
                if self.exists(key):
                    return False
                self._put(key, cast(BinaryIO, spool))
        return True

    def swap(self, key: str, data: bytes, expected: str | None) -> bool:
        with self._writing(f"writing {key}"):
            current = self.get(key)
            if (current.token if current else None) != expected:
                return False
            self._put(key, io.BytesIO(data))
        return True

    def _put(self, key: str, source: BinaryIO) -> None:
        path, temporary = self._path(key), self._path(f"local/tmp/{os.urandom(8).hex()}")
        source.seek(0)
        for file_path in (path, temporary):
            self._files.makedirs(file_path.rpartition("/")[0], exist_ok=True)
        with self._files.open(temporary, "wb") as sink:
            streams.pump(source, sink)
        self._files.mv(temporary, path)

    def delete(self, keys: Iterable[str]) -> None:
        with self._writing("deleting"):
            for key in keys:
                with suppress(FileNotFoundError):
                    self._files.rm_file(self._path(key))

    def list(self, prefix: str) -> Iterator[protocol.TreeFile]:
        files = dict[str, Any]()
        with self._asking(f"listing {prefix or 'the registry'}"), suppress(FileNotFoundError):
            self._files.invalidate_cache()
            files = self._files.find(self._path(prefix).rpartition("/")[0], detail=True)
        for path in sorted(files):
            key, info = path[len(self._path("")) :], files[path]
            if key.startswith(prefix) and not key.startswith("local/"):
                yield protocol.TreeFile(key, info["size"] if info["type"] == "file" else None)

    @contextmanager
    def _writing(self, doing: str) -> Iterator[None]:
        if not self._single_writer:
            raise RemoteError(
                f"{doing} at {self.url}: this kind of place does not compare and swap, so two writers would lose "
                "each other's work",
                f"if nobody else writes there, say so: {self.url}?{OPTION}=yes",
            )
        with self._lock, self._asking(doing):
            yield

    @contextmanager
    def _asking(self, doing: str) -> Iterator[None]:
        try:
            yield
        except RegError:
            raise
        except Exception as error:
            failure = f"{doing} at {self.url} failed: {why(error)}"
            raise RemoteError(failure, "check the URL and your credentials") from error


def file_remote(
    url: str, create: bool = False, mirror_of: str | None = None, known_id: str | None = None
) -> protocol.RegistryStore:
    """Open the registry at a URL. If `create` is set and the registry is missing, create it.

    Raises InputError if the URL is wrong. If no driver is installed, the first use raises HostError.
    """
    parts, address = urlsplit(url), url.partition("?")[0]
    if parts.scheme not in PROTOCOLS:
        schemes = "s3, gs, az, https, hf, file, " + ", ".join(PROTOCOLS)
        raise InputError(f"no backend for {parts.scheme}:", f"name a path or a URL of one of {schemes}")
    if parts.query not in ("", f"{OPTION}=yes"):
        raise InputError(f"{address} has an unknown option", f"the only one is {OPTION}=yes")

    def connect() -> tuple[Any, str]:
        try:
            from fsspec.core import url_to_fs

            files, root = url_to_fs(address, use_listings_cache=False)
        except ModuleNotFoundError:
            raise missing_extra("fsspec", "fsspec", f"a registry at {parts.scheme}://") from None
        except ImportError as error:
            raise HostError(f"{parts.scheme}:// needs a driver that is not installed", str(error)) from None
        return files, root.rstrip("/")

    return protocol.open_registry(FileStore(connect, address, bool(parts.query)), create, mirror_of, known_id)
