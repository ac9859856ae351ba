"""Trials of a local directory, in the scratch space of its registry."""

import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from onnxreg.registry.conformance.trial import Trial
from onnxreg.registry.conformance.writers import push_and_pull
from onnxreg.registry.maintain.directory_probes import PROBE, LocalSwapper, probe_disk, probe_lock
from onnxreg.registry.store import probes
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.directory.scratch import staging
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

    def trials(self) -> list[Trial]:
        directory, disk = self._directory, self._remote.disk
        swapper = LocalSwapper(directory / "probes", disk)
        return [
            Trial("disk", "files are synced, and renamed over others", lambda: probe_disk(directory, disk)),
            Trial("locks", "a lock keeps other processes out", lambda: probe_lock(directory)),
            Trial("create-only", "what is there is not created again", lambda: _create(swapper)),
            Trial("compare-and-swap", "only the bytes that were read are replaced", lambda: _swap(swapper)),
            Trial(
                "create-only, raced",
                f"of {probes.RACERS} writers that create at once, one wins",
                lambda: probes.race_create(swapper, "race-create"),
            ),
            Trial(
                "compare-and-swap, raced",
                f"of {probes.RACERS} writers that swap at once, one wins",
                lambda: _race_swap(swapper),
            ),
            Trial("two writers", "both pushes arrive, and come back whole", lambda: _writers(directory)),
        ]

    def clear(self) -> Iterator[str]:
        self._resources.close()
        if self._directory != self._remote.scratch and self._directory.exists():
            yield f"{self._directory} is still there"


def _create(swapper: LocalSwapper) -> Iterator[str]:
    yield from probes.probe_create(swapper, "create")


def _swap(swapper: LocalSwapper) -> Iterator[str]:
    swapper.swap("swap", b"first", None)
    current = swapper.get("swap")
    yield from probes.probe_exchange(swapper, "swap", current[1] if current else None)


def _race_swap(swapper: LocalSwapper) -> Iterator[str]:
    swapper.swap("race-swap", b"first", None)
    yield from probes.race_swap(swapper, "race-swap")


def _writers(directory: Path) -> Iterator[str]:
    yield from push_and_pull(lambda: DirectoryRegistry.create(directory / "registry"))
