"""Trials of an fsspec file system, in a directory of their own."""

import secrets
from collections.abc import Iterator
from typing import Any

from onnxreg.registry.conformance.trial import PromiseTrial, object_trials, push_and_pull
from onnxreg.registry.store.fsspec_store import file_remote
from onnxreg.registry.store.object_store import ObjectRegistry
from onnxreg.registry.store.require_cas import CasGuardedStore, unguarded
from onnxreg.schema.core.errors import Advice, RemoteError, why


class FileScratch:
    """A fresh directory below that of the registry, with one writer."""

    def __init__(self, url: str) -> None:
        base = url.partition("?")[0].rstrip("/")
        self._registry, self._path = url, f"gc/live-{secrets.token_hex(8)}/"
        self._url = f"{base}/{self._path}"

    @property
    def description(self) -> str:
        return f"files below {self._url}"

    @property
    def remedy(self) -> Advice:
        return Advice("clear-leftovers", registry=self._registry, paths=[self._path])

    def make(self) -> None:
        self._open()

    def trials(self) -> list[PromiseTrial]:
        store = self._open().store
        shared = isinstance(store, CasGuardedStore)
        return [
            *object_trials(unguarded(store), shared),
            PromiseTrial(
                "writers", "a push comes back whole", lambda: push_and_pull(self._open, 2 if shared else 1)
            ),
        ]

    def clear(self) -> Iterator[str]:
        files, root = _file_system(self._url)
        try:
            if files.exists(root):
                files.rm(root, recursive=True)
            if files.exists(root):
                yield "it is still there"
        except Exception as error:
            raise RemoteError(f"removing {self._url} failed: {why(error)}", "remove it by hand") from error

    def _open(self) -> ObjectRegistry:
        return file_remote(f"{self._url}registry?single_writer=yes", create=True)


def _file_system(url: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

    files, root = url_to_fs(url, use_listings_cache=False)
    return files, str(root)
