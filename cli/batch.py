"""`reg export --batch`: run the exports in a job file, in processes or on a Dask cluster (docs/fleets.md)."""

import gc
import io
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Collection, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing, redirect_stderr, redirect_stdout, suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, NamedTuple

from onnxreg.cli import apart
from onnxreg.cli.options import Session
from onnxreg.cli.output import EXIT_STATUS, InterruptError, counted, duration, fields, needs, printable, table
from onnxreg.converters.engine.plan import read_document
from onnxreg.converters.request import ON_BY_DEFAULT, ExportRequest, flag
from onnxreg.converters.source.toolchain import free_memory
from onnxreg.schema.core.errors import ConversionError, HostError, InputError, RegError, RemoteError, about
from onnxreg.schema.core.units import SILENT, count_cores
from onnxreg.schema.inputs.recipe_file import JobRow

PATHS = ("eval_suite", "confirm_suite", "calibration")  # options whose values are paths
# Options that are true or false
FLAGS = (*ON_BY_DEFAULT, "quantize", "int8_embeddings", "item_scores", "margin", "certify")
RERUN_HINT = "run the same command again: what is done is not done again"
JOB_BYTES = 4 * 10**9  # of free memory for each process, enough for an encoder of 0.5 GB
PATIENCE, SCHEDULER_PATIENCE = 20.0, "15s"  # before a process is killed; for a scheduler's answer
BUG = RegError.family  # the family of unexpected exceptions

Done = dict[str, Any] | RegError  # the answer of `run_line`, or an error without an answer
# {row, job, status, ref, digest, pushed, seconds, error, note}, as `--json` shows it
Outcome = dict[str, Any]


class Job(NamedTuple):
    """One export of a job file. `read_jobs` makes it from a row of the file."""

    row: int  # from 1
    called: str  # in messages
    version: str | None
    request: ExportRequest

    def words(self) -> list[str]:
        """Return the job's command line from `export` on. A value of the row is never read as an option."""
        request = self.request
        kinds = {"profile": request.profile, "task": request.task, "recipe": request.recipe}
        values = {"name": request.name, "version": self.version, **kinds, **request.options}
        words = ["export", "--json"]
        for key, value in values.items():
            if key in FLAGS:
                words += [flag(key)] if value is not (key in ON_BY_DEFAULT) else []
            elif isinstance(value, Mapping):
                words += [f"{flag(key)}={gold}={label or ''}" for gold, label in value.items()]
            elif value is not None:
                items = value if isinstance(value, list | tuple) else [value]
                words += [f"{flag(key)}={item}" for item in items]
        return words if request.source is None else [*words, "--", request.source]


def read_jobs(path: Path, trust_remote_code: bool = False, allow_code: Sequence[str] = ()) -> list[Job]:
    """Read a job file. Raise NotFoundError if it is missing, and InputError, naming the row, if it is malformed."""
    rows = read_document(path, "job file")
    if not isinstance(rows, list):
        raise InputError(f"{path.name} is not a list of jobs", "begin each job with a dash: - source: ...")
    if not rows:
        raise InputError(f"{path.name} holds no jobs", "write one row for each export: see docs/fleets.md")
    directory, jobs = path.absolute().parent, []
    for number, value in enumerate(rows, 1):
        label = f"{path.name}: row {number}"
        if not isinstance(value, dict):
            raise InputError(f"{label} holds no keys", "write keys and values: - {source: ..., profile: ...}")
        row = JobRow.from_json(value, label)
        options: dict[str, Any] = {**row.options, **row.statements}
        for key, item in options.items():
            if (key in FLAGS) is not isinstance(item, bool):
                kind = "true or false" if key in FLAGS else "a value, and not true or false"
                raise InputError(f"{label}: the option {key[:80]} takes {kind}")
        options |= {key: Path(_resolve_path(options[key], directory)) for key in PATHS if key in options}
        source = None if row.source is None else _resolve_path(row.source, directory)
        recipe = None if row.recipe is None else Path(_resolve_path(row.recipe, directory))
        more = (row.task, options, trust_remote_code, allow_code)
        with about(label):
            request = ExportRequest(source, row.name, row.profile, recipe, *more)
        name = row.name or source or str(recipe)
        called = name if row.version is None else f"{name}:{row.version}"
        jobs.append(Job(number, called, row.version, request))
    return jobs


def _resolve_path(text: Any, directory: Path) -> str:
    """Resolve the path in `text` (a path or `file.py:function`) against the directory, if the file exists there."""
    name = str(text)
    file = name.rpartition(":")[0] or name
    exists = (directory / name).exists() or (directory / file).is_file()
    return str(directory / name) if exists else name


def run(
    session: Session,
    file: Path,
    processes: int | None,
    scheduler: str | None,
    to: str | None,
    trust_remote_code: bool,
    allow_code: Sequence[str],
    no_cache: bool,
    timeout: float,
) -> None:
    """Run the jobs of a file on a Dask cluster or in processes. By default, `processes` is chosen for this machine.

    Raise InputError, before any job runs, if rows are certain to fail. If a job fails, raise an error after the last
    one.
    """
    from onnxreg.converters.tasks.code import absolute
    from onnxreg.registry.system import actor_of_event

    with needs("export", "reg export"):
        jobs = read_jobs(file, trust_remote_code, allow_code)
        _check(file, jobs, scheduler is not None, to)
    registry = session.open(create=True)  # here, not in two workers at once
    flags = {"--trust-remote-code": trust_remote_code, "--no-cache": no_cache}
    words = [name for name, is_set in flags.items() if is_set]
    words += [f"--allow-code={absolute(name)}" for name in allow_code]
    if to is not None:
        words.append(f"--push={registry.remotes.open(to, create=True).url}")
    lines = [(job, ["export", *words, *job.words()[1:]]) for job in jobs]
    if scheduler is not None:
        running = _on_cluster(lines, scheduler, timeout, actor_of_event(registry.actor) or "")
    else:
        own = ["--registry", str(registry.store.root.absolute())]
        fitting = (free_memory() or sys.maxsize) // JOB_BYTES
        count = processes or max(1, min(len(jobs), count_cores(), fitting))
        running = _in_processes([(job, [*own, *line]) for job, line in lines], count, timeout)
    empty: Outcome = dict.fromkeys(("ref", "digest", "error", "note"))
    empty |= {"status": "stopped", "pushed": False, "seconds": 0.0}
    outcomes = {job.row: {"row": job.row, "job": job.called, **empty} for job in jobs}
    is_interrupted = False
    try:
        with closing(running):
            for job, answer in running:
                outcomes[job.row] |= _outcome(answer)
                if not session.quiet and not session.as_json:
                    print(*map(printable, _lines(outcomes[job.row])), sep="\n", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        is_interrupted = True
    _report(session, list(outcomes.values()), is_interrupted)


def _check(file: Path, jobs: Sequence[Job], is_cluster: bool, to: str | None) -> None:
    if is_cluster and to is None:
        raise InputError("--scheduler needs --push", "the workers meet in a remote: --push REMOTE")
    errors, rows = dict[int, RegError](), dict[str, dict[str | None, int]]()
    for job in jobs:
        try:
            if is_cluster and job.version is None:
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
        raise InputError(f"{file.name}: {message}", "; ".join(advice))


def _in_processes(
    lines: Sequence[tuple[Job, list[str]]], count: int, minutes: float
) -> Generator[tuple[Job, Done]]:
    """Run the command lines in `count` processes, and yield the answers.

    Closing the generator interrupts the jobs. Ctrl-C does not reach them, because each process has its own POSIX session.
    """
    workers = Workers()
    with ThreadPoolExecutor(count) as threads:
        futures = {threads.submit(workers.run, words, minutes): job for job, words in lines}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            _end(workers.all, workers.idle)


class Workers:
    """The worker processes of a batch. Each runs one command line at a time."""

    def __init__(self) -> None:
        self.all, self.idle = list[Worker](), list[Worker]()

    def run(self, words: list[str], minutes: float, actor: str | None = None) -> Done:
        """Run a command line in an idle worker or a new one. If the worker dies, only this command line fails.

        A worker whose step takes longer than `minutes` is ended. For `actor` see `run_line`.
        """
        worker = self.idle.pop() if self.idle else None
        if worker is not None and worker.process.poll() is not None:  # it ended since its last answer
            self.all.remove(worker)
            worker = None
        if worker is None:
            self.all.append(worker := Worker())
        with suppress(ConnectionError):
            worker.channel.send((words, actor))
        try:
            answer: Done = apart.receive(worker.channel, SILENT, minutes, worker.process.wait)
        except RegError as error:
            self.all.remove(worker)
            _end([worker], [])
            return error
        self.idle.append(worker)
        return answer


class Worker:
    """A process that runs command lines and answers on `channel`. Its output goes to stderr."""

    def __init__(self) -> None:
        self.channel, end = Pipe()
        with end:
            command = [sys.executable, "-m", "onnxreg.cli.batch", str(end.fileno())]
            pipes: Any = {"stdin": subprocess.DEVNULL, "stdout": 2, "pass_fds": [end.fileno()]}
            # Dask sets it, for little memory. An export would take a quarter more time.
            env = {name: value for name, value in os.environ.items() if name != "MALLOC_TRIM_THRESHOLD_"}
            self.process = subprocess.Popen(command, env=env, start_new_session=True, **pipes)


def _end(workers: Collection[Worker], idle: Collection[Worker]) -> None:
    """Kill idle workers and interrupt busy ones. Kill the busy ones after `PATIENCE` seconds or at a second Ctrl-C."""
    patience = PATIENCE
    for worker in workers:
        worker.process.send_signal(signal.SIGKILL if worker in idle else signal.SIGINT)
    for worker in workers:
        try:
            worker.process.wait(patience)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            patience = 0
        with suppress(ProcessLookupError):
            os.killpg(worker.process.pid, signal.SIGKILL)
        worker.process.wait()


_workers = Workers()  # of this Dask worker


def _run_on_cluster(words: list[str], minutes: float, actor: str) -> Done:
    """Run a command line in a child process of a Dask worker, where Dask's profiler does not slow it down."""
    return _workers.run(words, minutes, actor)


def _on_cluster(
    lines: Sequence[tuple[Job, list[str]]], address: str, minutes: float, actor: str
) -> Generator[tuple[Job, Done]]:
    """Run the command lines on Dask workers, and yield the answers. If a worker is lost, another one gets its job."""
    with needs("dask", "--scheduler"):
        from distributed import Client
        from distributed import as_completed as as_they_end
    try:
        client = Client(address, timeout=SCHEDULER_PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        hint = "give the address that it printed: tcp://HOST:8786"
        raise RemoteError(f"no Dask scheduler answers at {address}", hint) from error
    hint = "every worker needs onnxreg[dask] of this version, and memory for an export"
    with client:
        futures = {
            client.submit(_run_on_cluster, words, minutes, actor, pure=False): job for job, words in lines
        }
        try:
            for future in as_they_end(futures, loop=client.loop):
                if lost := future.exception():
                    failure = f"its worker is gone: {type(lost).__name__}: {lost}"
                    yield futures[future], HostError(failure, hint)
                else:
                    yield futures[future], future.result()
        finally:
            client.cancel([future for future in futures if not future.done()])


def _outcome(answer: Done) -> Outcome:
    if isinstance(answer, RegError):
        return {"status": "failed", "error": fields(answer, "family message hint")}
    if answer["status"] == EXIT_STATUS["interrupted"]:
        return {}
    outcome: Outcome = {"status": "failed", "seconds": answer["seconds"]}
    if answer["out"]:
        document = json.loads(answer["out"])
        ref, yanked, pushed = document["ref"], document["yanked"], document.get("pushed")
        is_new = document["new"] if pushed is None else pushed["events"] > 0
        outcome |= {"status": "published" if is_new else "current", "ref": ref, "digest": document["digest"]}
        outcome["pushed"] = pushed is not None
        if document["newer"] and not document["new"]:
            outcome["note"] = f"these are the bytes of {ref}, and {document['newer']} is the newest"
        for yank in [yanked] if yanked else (pushed or {}).get("yanked", ()):
            reason = f": {yank['reason']}" if yank["reason"] else ""
            outcome["note"] = f"{yank.get('of', yank['version'])} is yanked{reason}"
    if not answer["status"]:
        return outcome
    last = (answer["err"].strip().splitlines() or [""])[-1]
    try:
        error = json.loads(last)["error"]
    except (ValueError, KeyError, TypeError):
        error = {"family": BUG, "message": last, "hint": answer["err"]}
    return {**outcome, "status": "failed", "error": error}


def _lines(outcome: Outcome) -> list[str]:
    headline, error = f"{outcome['ref'] or outcome['job']}: {outcome['status']}", outcome["error"]
    if error is None:
        note = [f"  note: {outcome['note']}"] if outcome["note"] else []
        return [f"{headline} in {duration(outcome['seconds'])}", *note]
    hint = [f"  hint: {error['hint']}"] if error["hint"] and error["family"] != BUG else []
    return [f"{headline}: {error['message']}", *hint]


def _report(session: Session, outcomes: Sequence[Outcome], is_interrupted: bool) -> None:
    ends = [outcome["status"] for outcome in outcomes]
    counts = {end: ends.count(end) for end in ("failed", "stopped")}
    counts = {"succeeded": len(ends) - sum(counts.values()), **counts}
    rows = []
    for outcome in outcomes:
        facts = [outcome[key] for key in ("row", "job", "status", "ref")]
        seconds = duration(outcome["seconds"]) if outcome["status"] != "stopped" else None
        why = outcome["note"] if outcome["error"] is None else outcome["error"]["message"]
        rows.append((*facts, "yes" if outcome["pushed"] else None, seconds, why))
    header = ("ROW", "JOB", "STATUS", "VERSION", "PUSHED", "TIME", "WHY")
    session.show({"jobs": outcomes, **counts}, table(header, rows))
    total = counted(len(outcomes), "job")
    if is_interrupted:
        raise InterruptError(f"interrupted: {counts['succeeded']} of {total} are done", RERUN_HINT)
    errors = [outcome["error"] for outcome in outcomes if outcome["error"] is not None]
    if bugs := [error["hint"] for error in errors if error["family"] == BUG]:
        print(*bugs, sep="\n", file=sys.stderr)
        raise SystemExit(1)
    if errors:
        failure = ConversionError(f"{len(errors)} of {total} failed", f"fix what failed, then {RERUN_HINT}")
        families = {error["family"] for error in errors}
        if len(families) == 1:
            (failure.family,) = families
        raise failure


def run_line(words: Sequence[str], actor: str | None = None) -> dict[str, Any]:
    """Run a command line in this process. Return its `status`, stdout (`out`), stderr (`err`), and `seconds`.

    If `actor` is not None, it is the author of the recorded events.
    """
    from onnxreg.cli.main import main

    began, out, err = time.monotonic(), io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        if actor is not None:
            os.environ["REG_ACTOR"] = actor
        try:
            status = main(words)
        except Exception:  # noqa: BLE001
            status = 1
            traceback.print_exc()
    seconds = round(time.monotonic() - began, 3)
    return {"status": status, "out": out.getvalue(), "err": err.getvalue(), "seconds": seconds}


def serve(descriptor: int) -> None:
    """Read the arguments of `run_line` from a channel, and run each command line. All runs share one import of PyTorch.

    While a command line runs, the label of each step is sent back as the step begins. When the command line ends, the
    result of `run_line` is sent back.
    """
    apart.watcher = channel = Connection(descriptor)
    answer: dict[str, Any] = {}
    with suppress(EOFError, ConnectionError, KeyboardInterrupt):
        while answer.get("status") != EXIT_STATUS["interrupted"]:
            answer = run_line(*channel.recv())
            channel.send(answer)
            gc.collect()  # traced modules and graphs are cycles with weights, which would last through the next run
            gc.freeze()  # what is left are modules and caches, at which later collections need not look


if __name__ == "__main__":
    serve(int(sys.argv[1]))
