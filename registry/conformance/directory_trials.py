"""Trials of a local directory, in the scratch space of its registry."""

import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

from onnxreg.registry.conformance.trial import PromiseTrial, trials_of
from onnxreg.registry.conformance.writers import push_and_pull
from onnxreg.registry.store import promises
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.directory.scratch import PROBE, staging
from onnxreg.registry.store.promises import DirectoryScratch, IndexSwapper, SwapScratch
from onnxreg.registry.support.disk import host_errors


class LocalScratch:
    """A directory in `local/tmp`. The next probe removes one whose process was killed."""

    def __init__(self, remote: DirectoryRegistry) -> None:
        self._remote = remote
        self._resources = ExitStack()
        self._directory = remote.scratch

    @property
    def description(self) -> str:
        return f"a directory in {self._remote.scratch}"

    @property
    def remedy(self) -> str:
        return shlex.join(["rm", "-r", str(self._directory)])

    def make(self) -> None:
        with host_errors(f"writing to {self._remote.url}"):
            self._remote.make_scratch()
            scratch = staging(self._remote.scratch, self._remote.disk, PROBE)
            self._directory = self._resources.enter_context(scratch)

    def trials(self) -> list[PromiseTrial]:
        directory, disk = self._directory, self._remote.disk
        swapper = IndexSwapper(DirectoryRegistry.create(directory / "swaps", disk))
        return [
            *trials_of(promises.DIRECTORY, lambda name: DirectoryScratch(directory, disk)),
            *trials_of(promises.SWAPS, partial(SwapScratch, swapper)),
            PromiseTrial("two writers", "both pushes arrive, and come back whole", self._writers),
        ]

    def _writers(self) -> Iterator[str]:
        yield from push_and_pull(lambda: DirectoryRegistry.create(self._directory / "registry"))

    def clear(self) -> Iterator[str]:
        self._resources.close()
        if self._directory != self._remote.scratch and self._directory.exists():
            yield f"{self._directory} is still there"
