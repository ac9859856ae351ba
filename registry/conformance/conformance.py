"""`reg doctor --live`: try every promise that a registry relies on, at its own store.

All trials use new scratch: a prefix below the registry's, a private repository beside it, or a directory in
its scratch space. No file of the registry is read or written. At the end, and after Ctrl-C, the scratch is
removed; if that fails, the outcome names the rest.
"""

from onnxreg.registry.conformance.directory_trials import LocalScratch
from onnxreg.registry.conformance.trial import PromiseTrial, Scratch, TrialOutcome, judge
from onnxreg.registry.store.abilities import LocalStore
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.fsspec_store import PROTOCOLS
from onnxreg.registry.store.open import open_url
from onnxreg.schema.core.errors import InputError, RemoteError
from onnxreg.schema.core.progress import SILENT, Progress


def scratch_at(url: str) -> Scratch:
    """Choose the scratch for a URL; nothing is created yet. InputError if the URL is read-only."""
    scheme = url.partition(":")[0]
    if scheme == "s3":
        from onnxreg.registry.conformance.s3_trials import S3Scratch
        from onnxreg.registry.store.s3.s3_url import S3Url

        return S3Scratch(S3Url.parse(url))
    if scheme == "hf":
        from onnxreg.registry.conformance.hub_trials import HubScratch
        from onnxreg.registry.store.hub.hub_url import HubUrl

        return HubScratch(HubUrl.parse(url))
    if scheme in PROTOCOLS:
        from onnxreg.registry.conformance.fsspec_trials import FileScratch

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
