"""The report of a batch: a line for each job as it ends, and a table of all."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from onnxreg.cli.batch.work import BUG, JobOutcome
from onnxreg.cli.context import Session
from onnxreg.cli.render import output
from onnxreg.schema.core.errors import ConversionError, RegError

AGAIN = "run the same command again: what is done is not done again"


class BatchError(RegError):
    """Some jobs failed. The family is theirs if they share one, else that of a conversion."""

    def __init__(self, message: str, families: set[str]) -> None:
        super().__init__(message, f"fix what failed, then {AGAIN}")
        self.family = families.pop() if len(families) == 1 else ConversionError.family


@contextmanager
def announced(session: Session, count: int, as_json: bool) -> Iterator[Callable[[JobOutcome], None]]:
    """Print each outcome on stderr, on a terminal with a bar below."""
    from onnxreg.cli.render.progress import counted

    with counted("exporting", count, session.quiet or as_json) as progress:
        yield lambda outcome: progress.step("\n".join(map(output.printable, _lines(outcome))))


def _lines(outcome: JobOutcome) -> Iterator[str]:
    headline = f"{outcome.ref or outcome.called}: {outcome.status}"
    if not outcome.failed:
        yield f"{headline} in {output.duration(outcome.seconds)}"
        return
    yield f"{headline}: {outcome.message}"
    if outcome.hint and outcome.family != BUG:
        yield f"  hint: {outcome.hint}"


def show(session: Session, outcomes: Sequence[JobOutcome], as_json: bool) -> None:
    """The table, or with `as_json` `{jobs, succeeded, failed, stopped}`."""
    if as_json:
        counts = {"succeeded": 0, "failed": 0, "stopped": 0}
        for outcome in outcomes:
            counts[outcome.status if outcome.status in counts else "succeeded"] += 1
        output.write_json({"jobs": [outcome.to_json() for outcome in outcomes], **counts})
        return
    rows = [
        (
            outcome.row,
            outcome.called,
            outcome.status,
            outcome.ref or "",
            "yes" if outcome.pushed else "",
            output.duration(outcome.seconds) if outcome.status != "stopped" else "",
            outcome.message,
        )
        for outcome in outcomes
    ]
    session.table(("ROW", "JOB", "STATUS", "VERSION", "PUSHED", "TIME", "WHY"), rows)


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
