"""`reg export --batch`: read the jobs, run them, say what became of each."""

import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from onnxreg.cli.batch import cluster, pool
from onnxreg.cli.batch.jobs import Job, read_jobs, refuse_twins
from onnxreg.cli.batch.work import BUG, JobOutcome, Terms, request_of, run_job
from onnxreg.cli.context import Session
from onnxreg.cli.errors import InterruptError, needs
from onnxreg.cli.options.shared import wants_deltas
from onnxreg.cli.render import output
from onnxreg.cli.services.export_request import CodeTrust
from onnxreg.schema.core.errors import ConversionError, HostError, InputError, RegError
from onnxreg.schema.core.ref import Ref

RERUN_HINT = "run the same command again: what is done is not done again"
Finished = Generator[tuple[Job, JobOutcome | HostError]]


@dataclass(frozen=True)
class Fleet:
    """The way to run a job file: in `processes` (None: as many as fit), or on the cluster of a `scheduler`."""

    file: Path
    processes: int | None = None
    scheduler: str | None = None
    to: str | None = None
    trust: CodeTrust = field(default_factory=CodeTrust)
    cached: bool = True


def run(session: Session, fleet: Fleet) -> None:
    """Run every job. A failure is raised at the end, when all others are done.

    Raises InputError, naming every row that cannot be run, before any is; InterruptError on Ctrl-C.
    """
    deltas = wants_deltas()
    with needs("export", "reg export"):
        jobs = read_jobs(fleet.file)
        _check(fleet, jobs)
        _warn_of_thin_suites(session, jobs, fleet.trust)
    terms = _terms(session, fleet)
    outcomes: dict[int, JobOutcome] = {}
    interrupted = False
    with announce_outcomes(session, len(jobs)) as tell:
        try:
            with closing(_start(session, fleet, jobs, terms)) as finished:
                for job, result in finished:
                    outcomes[job.row] = _outcome(job, result)
                    tell(outcomes[job.row])
        except KeyboardInterrupt:
            interrupted = True
    rows = [outcomes.get(job.row) or JobOutcome(job.row, job.called, "stopped") for job in jobs]
    show(session, rows)
    published = (Ref.parse(row.ref) for row in rows if row.status == "published" and row.ref)
    if interrupted:
        raise InterruptError(f"interrupted: {summary(rows)}", RERUN_HINT)
    if deltas:
        from onnxreg.cli.services.delta_service import offer_deltas

        registry = session.open(create=None)
        store = None if fleet.to is None else registry.remotes.open(fleet.to)
        offer_deltas(session, registry, published, store)
    raise_failures(rows)


def _check(fleet: Fleet, jobs: Sequence[Job]) -> None:
    if fleet.scheduler is not None and fleet.to is None:
        raise InputError("--scheduler needs --to", "the workers meet in a remote: --to REMOTE")
    names, errors = [], dict[int, RegError]()
    for job in jobs:
        try:
            names.append(_check_job(fleet, job))
        except HostError:
            raise
        except RegError as error:
            errors[job.row] = error
    if errors:
        message = "; ".join(f"row {row}: {error.message}" for row, error in errors.items())
        advice = dict.fromkeys(error.hint for error in errors.values() if error.hint)
        raise InputError(f"{fleet.file.name}: {message}", "; ".join(advice))
    refuse_twins(jobs, names, fleet.file.name)


def _check_job(fleet: Fleet, job: Job) -> str:
    """The model's name for people. Raises an error if the job is certain to fail."""
    if fleet.scheduler is not None and job.request.version is None:
        raise InputError("there is no version", "workers cannot agree on the next one: name it")
    return request_of(job, fleet.trust).check() or job.called


def _warn_of_thin_suites(session: Session, jobs: Sequence[Job], trust: CodeTrust) -> None:
    """Say, before anything runs, which suites are too small for a verdict."""
    rows_by_message: dict[str, list[int]] = {}
    for job in jobs:
        evaluation = request_of(job, trust).evaluation_plan()
        for message in [] if evaluation is None else evaluation.warnings():
            rows_by_message.setdefault(message, []).append(job.row)
    for message, rows in rows_by_message.items():
        session.warn(f"warning: {'row' if len(rows) == 1 else 'rows'} {', '.join(map(str, rows))}: {message}")


def _terms(session: Session, fleet: Fleet) -> Terms:
    """Make the registry and the remote if they do not exist yet, so that no two workers do.

    Events name the person who starts the jobs, not the workers' machines.
    """
    registry = session.open(create=True)
    to = None if fleet.to is None else registry.remotes.open(fleet.to, create=True).url
    own = None if fleet.scheduler is not None else registry.store.root.absolute()
    from onnxreg.converters.tasks.code.consent import absolute
    from onnxreg.registry.support.actor import NOBODY, actor_of_event

    trust = replace(fleet.trust, code=tuple(map(absolute, fleet.trust.code)))
    actor = actor_of_event(registry.actor) or NOBODY
    return Terms(own, to, trust, fleet.cached, actor)


def _start(session: Session, fleet: Fleet, jobs: Iterable[Job], terms: Terms) -> Finished:
    work: Callable[[Job], JobOutcome] = partial(run_job, terms=terms)
    if fleet.scheduler is None:
        yield from pool.run_all(work, jobs, fleet.processes or pool.processes(jobs))
        return

    def show_link(link: str) -> None:
        if not session.as_json:
            session.warn(f"the cluster's dashboard: {link}")

    with needs("dask", "--scheduler"):
        yield from cluster.run_all(work, jobs, fleet.scheduler, show_link)


def _outcome(job: Job, result: JobOutcome | HostError) -> JobOutcome:
    if isinstance(result, JobOutcome):
        return result
    return JobOutcome(job.row, job.called, "failed").with_error(result)


class BatchError(RegError):
    """Some jobs failed. The family is theirs if they share one, else that of a conversion."""

    def __init__(self, message: str, families: set[str]) -> None:
        super().__init__(message, f"fix what failed, then {RERUN_HINT}")
        self.family = families.pop() if len(families) == 1 else ConversionError.family


@contextmanager
def announce_outcomes(session: Session, count: int) -> Iterator[Callable[[JobOutcome], None]]:
    """Print each outcome on stderr, on a terminal with a bar below."""
    from onnxreg.cli.render.progress import counted

    with counted("exporting", count, session.quiet or session.as_json) as progress:
        yield lambda outcome: progress.step("\n".join(map(output.printable, _lines(outcome))))


def _lines(outcome: JobOutcome) -> Iterator[str]:
    headline = f"{outcome.ref or outcome.called}: {outcome.status}"
    if not outcome.failed:
        yield f"{headline} in {output.duration(outcome.seconds)}"
        if outcome.note:
            yield f"  note: {output.printable(outcome.note)}"
        return
    yield f"{headline}: {outcome.message}"
    if outcome.hint and outcome.family != BUG:
        yield f"  hint: {outcome.hint}"


def show(session: Session, outcomes: Sequence[JobOutcome]) -> None:
    """The table, or with --json `{jobs, succeeded, failed, stopped}`."""
    counts = {"succeeded": 0, "failed": 0, "stopped": 0}
    for outcome in outcomes:
        counts[outcome.status if outcome.status in counts else "succeeded"] += 1
    rows = [
        (
            *(outcome.row, outcome.called, outcome.status, outcome.ref or ""),
            "yes" if outcome.pushed else "",
            output.duration(outcome.seconds) if outcome.status != "stopped" else "",
            outcome.message or outcome.note,
        )
        for outcome in outcomes
    ]
    session.show(
        {"jobs": [outcome.to_json() for outcome in outcomes], **counts},
        output.table(("ROW", "JOB", "STATUS", "VERSION", "PUSHED", "TIME", "WHY"), rows),
    )


def summary(outcomes: Sequence[JobOutcome]) -> str:
    """`2 of 5 jobs are done`"""
    finished = sum(outcome.status in ("published", "current") for outcome in outcomes)
    return f"{finished} of {output.counted(len(outcomes), 'job')} are done"


def raise_failures(outcomes: Sequence[JobOutcome]) -> None:
    """BatchError if a job failed; a bug ends the program with status 1, and shows its traceback."""
    failed = [outcome for outcome in outcomes if outcome.failed]
    families = {outcome.family or BUG for outcome in failed}
    if BUG in families:
        print(*(outcome.hint for outcome in failed if outcome.family == BUG), sep="\n", file=sys.stderr)
        raise SystemExit(1)
    if failed:
        raise BatchError(f"{len(failed)} of {output.counted(len(outcomes), 'job')} failed", families)
