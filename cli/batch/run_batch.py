"""`reg export --batch`: read and check the jobs, share them out, and say what became of each."""

import json
import signal
import subprocess
import sys
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.cli.batch import worker
from onnxreg.cli.batch.jobs import Job, read_jobs
from onnxreg.cli.context import Session
from onnxreg.cli.errors import EXIT_STATUS, InterruptError, needs
from onnxreg.cli.render import output
from onnxreg.schema.core.errors import ConversionError, HostError, InputError, RegError, RemoteError
from onnxreg.schema.core.progress import count_cores

RERUN_HINT = "run the same command again: what is done is not done again"
JOB_BYTES = 4 * 10**9
"""Free memory for each process: an encoder of 0.5 GB takes so much."""
PATIENCE = 20.0
"""Seconds that a process has to clear away what it began, before it is killed."""
SCHEDULER_PATIENCE = "15s"

BUG = RegError.family
"""The family of what no error was made for."""

Done = dict[str, Any] | RegError
"""The answer of `worker.run`, or the reason why there is none."""
Outcome = dict[str, Any]
"""The result of a job: `{row, job, status, ref, digest, pushed, seconds, error, note}`, as `--json` shows it."""


@dataclass(frozen=True)
class Batch:
    """The way to run a job file: in `processes` (None: as many as fit), or on the cluster of a `scheduler`."""

    file: Path
    processes: int | None
    scheduler: str | None
    to: str | None
    trust_remote_code: bool
    allow_code: tuple[str, ...]
    no_cache: bool


def run(session: Session, batch: Batch) -> None:
    """Run every job. A failure is raised at the end, when all others are done.

    Raises InputError, naming every row that cannot be run, before any is; InterruptError on Ctrl-C.
    """
    from onnxreg.cli.render.progress import counted

    with needs("export", "reg export"):
        jobs = read_jobs(batch.file, batch.trust_remote_code, batch.allow_code)
        _check(batch, jobs)
    empty: Outcome = {
        "ref": None,
        "digest": None,
        "pushed": False,
        "seconds": 0.0,
        "error": None,
        "note": None,
    }
    outcomes = {job.row: {"row": job.row, "job": job.called, "status": "stopped", **empty} for job in jobs}
    is_interrupted = False
    with counted("exporting", len(jobs), session.quiet or session.as_json) as progress:
        try:
            with closing(_start(session, batch, jobs)) as finished:
                for job, answer in finished:
                    outcomes[job.row] |= _outcome(answer)
                    progress.step("\n".join(map(output.printable, _lines(outcomes[job.row]))))
        except KeyboardInterrupt:
            is_interrupted = True
    rows = list(outcomes.values())
    counts = {"succeeded": 0, "failed": 0, "stopped": 0}
    for row in rows:
        counts[row["status"] if row["status"] in counts else "succeeded"] += 1
    _show(session, rows, counts)
    if is_interrupted:
        jobs_done = f"{counts['succeeded']} of {output.counted(len(rows), 'job')} are done"
        raise InterruptError(f"interrupted: {jobs_done}", RERUN_HINT)
    errors = [row["error"] for row in rows if row["error"] is not None]
    if bugs := [error["hint"] for error in errors if error["family"] == BUG]:
        print(*bugs, sep="\n", file=sys.stderr)
        raise SystemExit(1)
    if errors:
        failed = f"{len(errors)} of {output.counted(len(rows), 'job')} failed"
        families = {error["family"] for error in errors}
        failure = ConversionError(failed, f"fix what failed, then {RERUN_HINT}")
        if len(families) == 1:
            (failure.family,) = families
        raise failure


def _check(batch: Batch, jobs: Sequence[Job]) -> None:
    """Raise InputError for all jobs that are certain to fail, and for two that would be one version."""
    if batch.scheduler is not None and batch.to is None:
        raise InputError("--scheduler needs --push", "the workers meet in a remote: --push REMOTE")
    errors, rows = dict[int, RegError](), dict[str, dict[str | None, int]]()
    for job in jobs:
        try:
            if batch.scheduler is not None and job.version is None:
                raise InputError("there is no version", "workers cannot agree on the next one: name it")
            name = job.request.check() or job.called
        except HostError:
            raise
        except RegError as error:
            errors[job.row] = error
            continue
        own = rows.setdefault(name, {})
        if own and (job.version is None or job.version in own or None in own):
            first = own.get(job.version, own.get(None, min(own.values())))
            message = f"rows {first} and {job.row} both are {name}"
            errors[job.row] = InputError(message, "give each a version of its own")
        own.setdefault(job.version, job.row)
    if errors:
        message = "; ".join(f"row {row}: {error.message}" for row, error in errors.items())
        advice = dict.fromkeys(error.hint for error in errors.values() if error.hint)
        raise InputError(f"{batch.file.name}: {message}", "; ".join(advice))


def _start(session: Session, batch: Batch, jobs: Sequence[Job]) -> Generator[tuple[Job, Done]]:
    """Make the registry and the remote if they do not exist yet, so that no two workers do; then run the jobs."""
    from onnxreg.converters.request import free_memory
    from onnxreg.converters.tasks.code import absolute
    from onnxreg.registry.support.environment import actor_of_event

    registry = session.open(create=True)
    more = [f"--allow-code={absolute(name)}" for name in batch.allow_code]
    flags = {"--trust-remote-code": batch.trust_remote_code, "--no-cache": batch.no_cache}
    more += [name for name, is_set in flags.items() if is_set]
    if batch.to is not None:
        more.append(f"--push={registry.remotes.open(batch.to, create=True).url}")
    lines = [(job, ["export", *more, *job.words()[1:]]) for job in jobs]
    if batch.scheduler is not None:
        with needs("dask", "--scheduler"):
            yield from _on_cluster(lines, batch.scheduler, actor_of_event(registry.actor) or "")
        return
    own = ["--registry", str(registry.store.root.absolute())]
    fitting = (free_memory() or sys.maxsize) // JOB_BYTES
    count = batch.processes or max(1, min(len(jobs), count_cores(), fitting))
    yield from _in_processes([(job, [*own, *words]) for job, words in lines], count)


def _in_processes(lines: Sequence[tuple[Job, list[str]]], count: int) -> Generator[tuple[Job, Done]]:
    """Run each command line in one of `count` processes; one that dies fails its own job alone.

    Closing the generator interrupts the running jobs, which clear away what they began.
    """
    idle, workers = list[subprocess.Popen[str]](), list[subprocess.Popen[str]]()

    def work(words: list[str]) -> Done:
        process = idle.pop() if idle else _start_worker()
        workers.append(process)
        assert process.stdin is not None and process.stdout is not None
        with suppress(BrokenPipeError):
            print(json.dumps(words), file=process.stdin, flush=True)
        if not (line := process.stdout.readline()):
            return HostError(
                f"its worker died: {_ending(process.wait())}",
                "too little memory? let fewer run at once: --jobs 1",
            )
        idle.append(process)
        answer: dict[str, Any] = json.loads(line)
        return answer

    with ThreadPoolExecutor(count) as threads:
        futures = {threads.submit(work, words): job for job, words in lines}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            for process in workers:
                if process not in idle:
                    process.send_signal(signal.SIGINT)
            _end(dict.fromkeys(workers))


def _start_worker() -> "subprocess.Popen[str]":
    """A worker in a session of its own: Ctrl-C is this process's to pass on."""
    return subprocess.Popen(
        [sys.executable, "-m", worker.__name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _end(workers: Iterable["subprocess.Popen[str]"]) -> None:
    """Wait until all ended. Ctrl-C, pressed again, kills them."""
    patience = PATIENCE
    for process in workers:
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
    for process in workers:
        try:
            process.wait(patience)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            patience = 0
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _ending(status: int) -> str:
    with suppress(ValueError):
        return f"it was ended by {signal.Signals(-status).name}"
    return f"it ended with status {status}"


def _on_cluster(
    lines: Sequence[tuple[Job, list[str]]], address: str, actor: str
) -> Generator[tuple[Job, Done]]:
    """Run each command line on a Dask worker. Dask gives the job of a worker that is gone to others first."""
    from distributed import Client
    from distributed import as_completed as as_they_end

    try:
        client = Client(address, timeout=SCHEDULER_PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        raise RemoteError(
            f"no Dask scheduler answers at {address}", "give the address that it printed: tcp://HOST:8786"
        ) from error
    with client:
        futures = {client.submit(worker.run, words, actor, pure=False): job for job, words in lines}
        try:
            for future in as_they_end(futures, loop=client.loop):
                lost = future.exception()
                yield (
                    futures[future],
                    future.result()
                    if lost is None
                    else HostError(
                        f"its worker is gone: {type(lost).__name__}: {lost}",
                        "every worker needs onnxreg[dask] of this version, --nthreads 1, and memory for an export",
                    ),
                )
        finally:
            client.cancel([future for future in futures if not future.done()])


def _outcome(answer: Done) -> Outcome:
    """The result of a job, by what its command line printed; nothing if it was interrupted."""
    if isinstance(answer, RegError):
        return {"status": "failed", "error": _error(answer.family, answer.message, answer.hint)}
    if answer["status"] == EXIT_STATUS["interrupted"]:
        return {}
    outcome: Outcome = {"status": "failed", "seconds": answer["seconds"]}
    if answer["out"]:
        document = json.loads(answer["out"])
        ref, yanked, pushed = document["ref"], document["yanked"], document.get("pushed")
        is_new = document["new"] if pushed is None else pushed["events"] > 0
        outcome |= {"status": "published" if is_new else "current", "ref": ref, "digest": document["digest"]}
        outcome["pushed"] = pushed is not None
        for yank in [yanked] if yanked else (pushed or {}).get("yanked", ()):
            reason = f": {yank['reason']}" if yank["reason"] else ""
            outcome["note"] = f"{yank.get('of', yank['version'])} is yanked{reason}"
        if outcome.get("note") is None and document["newer"] and not document["new"]:
            outcome["note"] = f"these are the bytes of {ref}, and {document['newer']} is the newest"
    if not answer["status"]:
        return outcome
    last = (answer["err"].strip().splitlines() or [""])[-1]
    try:
        error = json.loads(last)["error"]
    except (ValueError, KeyError, TypeError):
        error = _error(BUG, last, answer["err"])
    return {**outcome, "status": "failed", "error": error}


def _error(family: str, message: str, hint: str) -> dict[str, str]:
    return {"family": family, "message": message, "hint": hint}


def _lines(outcome: Outcome) -> Iterator[str]:
    headline, error = f"{outcome['ref'] or outcome['job']}: {outcome['status']}", outcome["error"]
    if error is None:
        yield f"{headline} in {output.duration(outcome['seconds'])}"
        yield from [f"  note: {outcome['note']}"] if outcome["note"] else []
        return
    yield f"{headline}: {error['message']}"
    yield from [f"  hint: {error['hint']}"] if error["hint"] and error["family"] != BUG else []


def _show(session: Session, outcomes: Sequence[Outcome], counts: dict[str, int]) -> None:
    rows = [
        (
            *(outcome["row"], outcome["job"], outcome["status"], outcome["ref"] or ""),
            "yes" if outcome["pushed"] else "",
            output.duration(outcome["seconds"]) if outcome["status"] != "stopped" else "",
            (outcome["note"] or "") if outcome["error"] is None else outcome["error"]["message"],
        )
        for outcome in outcomes
    ]
    header = ("ROW", "JOB", "STATUS", "VERSION", "PUSHED", "TIME", "WHY")
    session.show({"jobs": list(outcomes), **counts}, output.table(header, rows))
