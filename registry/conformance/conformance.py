"""`reg doctor --live`: try every promise that a registry relies on, at its own store.

All trials use new scratch: a prefix below the registry's, a private repository beside it, or a directory in
its scratch space. No file of the registry is read or written. At the end, and after Ctrl-C, the scratch is
removed; if that fails, the outcome names the rest.
"""

import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

from onnxreg.registry.conformance.trial import (
    PromiseTrial,
    Scratch,
    TrialOutcome,
    judge,
    push_and_pull,
    trials_of,
)
from onnxreg.registry.store import promises
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.directory.scratch import PROBE, staging
from onnxreg.registry.store.fsspec_store import PROTOCOLS
from onnxreg.registry.store.open import open_url
from onnxreg.registry.store.promises import DirectoryScratch, IndexSwapper, SwapScratch
from onnxreg.registry.store.protocol import LocalStore
from onnxreg.registry.support.disk import host_errors
from onnxreg.schema.core.errors import InputError, RemoteError
from onnxreg.schema.core.progress import SILENT, Progress


def scratch_at(url: str) -> Scratch:
    """Choose the scratch for a URL; nothing is created yet. InputError if the URL is read-only."""
    scheme = url.partition(":")[0]
    if scheme == "s3":
        from onnxreg.registry.conformance.object_trials import S3Scratch
        from onnxreg.registry.store.s3.s3_url import S3Url

        return S3Scratch(S3Url.parse(url))
    if scheme == "hf":
        from onnxreg.registry.conformance.hub_trials import HubScratch
        from onnxreg.registry.store.hub.hub_client import HubUrl

        return HubScratch(HubUrl.parse(url))
    if scheme in PROTOCOLS:
        from onnxreg.registry.conformance.object_trials import FileScratch

        return FileScratch(url)
    remote = open_url(url)
    if isinstance(remote, LocalStore):
        return LocalScratch(DirectoryRegistry(remote.root, remote.disk))
    raise InputError(f"nothing can be tried at {url}", "name a directory, or an s3://, hf:// or fsspec URL")


def run(scratch: Scratch, progress: Progress = SILENT) -> list[TrialOutcome]:
    """Run all trials; each is a step of `progress`. RemoteError if scratch is left after an
    interruption.
    """
    outcomes: list[TrialOutcome] = []
    scratch.make()
    try:
        for trial in scratch.trials():
            progress.step(trial.check)
            outcomes.append(judge(trial))
    except BaseException as error:
        cleanup = _clear(scratch)
        if not cleanup.ok:
            raise RemoteError(cleanup.detail, cleanup.fix) from error
        raise
    return [*outcomes, _clear(scratch)]


def _clear(scratch: Scratch) -> TrialOutcome:
    """Remove the scratch. After any failure, the outcome names what may be left."""
    try:
        outcome = judge(PromiseTrial("scratch", "all that was made is removed again", scratch.clear))
    except KeyboardInterrupt:
        outcome = TrialOutcome("scratch", "broken", "interrupted")
    if outcome.ok:
        return outcome
    return TrialOutcome(
        "scratch", "broken", f"{scratch.description} may be left: {outcome.detail}", scratch.remedy
    )


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
