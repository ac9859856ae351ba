"""`reg doctor --live`: every promise that a registry relies on, tried out at the place itself.

All of it happens in scratch that is new: a prefix below the registry's, a private repository beside it, a directory in
its scratch space. Nothing of the registry is read or written. At the end, and after Ctrl-C, the scratch is removed; where
that fails, it is said what is left.
"""

from collections.abc import Callable

from onnxreg.registry.conformance.directory_trials import LocalScratch
from onnxreg.registry.conformance.trial import Scratch, Trial, TrialOutcome, judge
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.fsspec_store import PROTOCOLS
from onnxreg.registry.store.open import open_url
from onnxreg.schema.core.errors import InputError, RemoteError


def scratch_at(url: str) -> Scratch:
    """Scratch for the trials of a place; nothing is made yet. InputError where the place is only read."""
    scheme = url.partition(":")[0]
    if scheme == "s3":
        from onnxreg.registry.conformance.s3_trials import S3Scratch
        from onnxreg.registry.store.s3.s3_client import S3Url

        return S3Scratch(S3Url.parse(url))
    if scheme == "hf":
        from onnxreg.registry.conformance.hub_trials import HubScratch
        from onnxreg.registry.store.hub.hub_url import HubUrl as HubPlace

        return HubScratch(HubPlace.parse(url))
    if scheme in PROTOCOLS:
        from onnxreg.registry.conformance.fsspec_trials import FileScratch

        return FileScratch(url)
    remote = open_url(url)
    if isinstance(remote, DirectoryRegistry):
        return LocalScratch(remote)
    raise InputError(f"nothing can be tried at {url}", "name a directory, or an s3://, hf:// or fsspec URL")


def run(scratch: Scratch, told: Callable[[str], None] = lambda check: None) -> list[TrialOutcome]:
    """Try everything; `told` hears what is being tried. RemoteError where an interruption leaves something behind."""
    found: list[TrialOutcome] = []
    scratch.make()
    try:
        for trial in scratch.trials():
            told(trial.check)
            found.append(judge(trial))
    except BaseException as error:
        left = _clear(scratch)
        if not left.ok:
            raise RemoteError(left.detail, left.fix) from error
        raise
    return [*found, _clear(scratch)]


def _clear(scratch: Scratch) -> TrialOutcome:
    """Remove the scratch. Whatever keeps us from it, what may be left is said."""
    try:
        outcome = judge(Trial("scratch", "all that was made is removed again", scratch.clear))
    except KeyboardInterrupt:
        outcome = TrialOutcome("scratch", "broken", "interrupted")
    if outcome.ok:
        return outcome
    return TrialOutcome("scratch", "broken", f"{scratch.what} may be left: {outcome.detail}", scratch.remedy)
