"""One job of a fleet, wherever it runs: in a process of ours or on a Dask worker, which finds these functions by name."""

import signal
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from onnxreg.cli.batch.jobs import OPTION_PATHS, Job
from onnxreg.cli.context import Session
from onnxreg.cli.errors import needs, of_system
from onnxreg.cli.interrupts import interruptible
from onnxreg.cli.render.progress import CheckedProgress
from onnxreg.cli.reports.publish_report import existing_note
from onnxreg.cli.services import export_service
from onnxreg.cli.services.export_request import CodeTrust, ExportRequest
from onnxreg.schema.core.errors import ConflictError, NotFoundError, RegError
from onnxreg.schema.core.progress import SILENT
from onnxreg.schema.core.ref import Ref, Version

if TYPE_CHECKING:
    from onnxreg.converters.engine.plan import ExportPlan
    from onnxreg.registry import Registry
    from onnxreg.registry.read.versions import Release

Status = Literal["published", "current", "failed", "stopped"]
BUG = RegError.family
"""The family of what no error was made for."""


@dataclass(frozen=True)
class JobOutcome:
    """The result of a job. `current`: the version existed; `stopped`: the run ended before the job did.

    `ref` and `digest` (of the manifest) are set if there is a version; of what failed, `family`, `message` and `hint`
    are those of the error. `pushed`: it is in the remote, too. `note` says if the bytes are yanked, or not the newest.
    """

    row: int
    called: str
    status: Status
    ref: str | None = None
    digest: str | None = None
    pushed: bool = False
    seconds: float = 0.0
    family: str | None = None
    message: str = ""
    hint: str = ""
    note: str = ""

    @property
    def failed(self) -> bool:
        return self.status == "failed"

    def with_error(self, error: RegError) -> Self:
        return replace(self, status="failed", family=error.family, message=error.message, hint=error.hint)

    def to_json(self) -> dict[str, Any]:
        error = {"family": self.family, "message": self.message, "hint": self.hint} if self.failed else None
        return {
            "row": self.row,
            "job": self.called,
            "status": self.status,
            "ref": self.ref,
            "digest": self.digest,
            "pushed": self.pushed,
            "seconds": round(self.seconds, 3),
            "error": error,
            "note": self.note or None,
        }


_alone = threading.Lock()
"""Exporters are not made for two threads of one process."""


@dataclass(frozen=True)
class Terms:
    """The settings of all jobs of a run.

    `registry` is where versions are published; None: the worker's own default, which nobody else reads. `to` is the URL
    of the remote that each version is pushed to. `actor` is the claimed author of the events, "" for nobody, None for
    the worker's own default.
    """

    registry: Path | None = None
    to: str | None = None
    trust: CodeTrust = field(default_factory=CodeTrust)
    cached: bool = True
    actor: str | None = None


def request_of(job: Job, trust: CodeTrust) -> ExportRequest:
    """The export that a job requests."""
    row = job.request
    recipe = None if row.recipe is None else Path(row.recipe)
    options = {key: Path(value) if key in OPTION_PATHS else value for key, value in row.options.items()}
    options |= row.statements
    evaluation = None if row.evaluation is None else row.evaluation.to_json()
    return ExportRequest(row.source, row.name, row.profile, recipe, row.task, options, trust, evaluation)


def run_job(job: Job, terms: Terms) -> JobOutcome:
    """Export, publish and push. Whatever goes wrong is in the outcome; only Ctrl-C and SIGTERM are raised."""
    began, outcome = time.monotonic(), JobOutcome(job.row, job.called, "failed")
    try:
        with _alone, needs("export", "reg export"), interruptible(signal.SIGTERM) as check:
            outcome = _run(job, terms, outcome, check)
    except RegError as error:
        outcome = outcome.with_error(error)
    except OSError as error:
        outcome = outcome.with_error(of_system(error))
    except Exception as error:  # noqa: BLE001
        outcome = outcome.with_error(RegError(f"{type(error).__name__}: {error}", traceback.format_exc()))
    return replace(outcome, seconds=time.monotonic() - began)


def _run(job: Job, terms: Terms, outcome: JobOutcome, check: Callable[[], None]) -> JobOutcome:
    registry = Session(terms.registry, quiet=True).open(create=True)
    registry.actor = terms.actor
    request = request_of(job, terms.trust)
    plan = request.plan()
    version = None if job.request.version is None else Version.parse(job.request.version)
    earlier = None if terms.registry is not None else _finished(registry, plan, version, terms.to)
    if earlier is not None:
        return replace(
            outcome, status="current", ref=str(earlier.ref), digest=str(earlier.digest), pushed=True
        )
    progress, repeatable = CheckedProgress(SILENT, check), request if terms.cached else None
    published, _ = export_service.publish(registry, plan, version, progress, repeatable)
    status: Status = "published" if published.new else "current"
    is_older = not published.new and published.newer is not None
    note = existing_note(published) if published.yank is not None or is_older else ""
    outcome = replace(outcome, status=status, ref=str(published.ref), digest=str(published.digest), note=note)
    if terms.to is None:
        return outcome
    try:
        moved = registry.push(published.ref, terms.to)
    except RegError as error:
        return outcome.with_error(error)
    yank = moved.yanks.get(published.version)
    note = outcome.note if yank is None else yank.words
    return replace(outcome, status="published" if moved.events else outcome.status, pushed=True, note=note)


def _finished(
    registry: "Registry", plan: "ExportPlan", version: Version | None, to: str | None
) -> "Release | None":
    """The version, if the remote has it, made from this source by this recipe.

    ConflictError if it has another one under that number. The cache answers for exports with an evaluation.
    """
    if to is None or version is None or plan.promises.key():
        return None
    ref, remote = Ref(plan.name, str(version)), registry.remotes.open(to)
    try:
        registry.find(ref, remote)
        published = registry.get(ref, remote)
    except NotFoundError:
        return None
    source, recipe = published.manifest.source, published.manifest.recipe
    if (
        source is None
        or recipe is None
        or (source.digest, recipe.parameters.get("recipe")) != (plan.source.digest, plan.recorded_recipe())
    ):
        raise ConflictError(
            f"{ref} is there already, made from another source or by another recipe",
            "give the job another version",
        )
    return published
