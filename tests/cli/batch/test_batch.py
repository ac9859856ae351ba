"""`reg export --batch`: what it refuses before anything runs, and what it says of what became of each job."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.command_line import table

from onnxreg.cli import batch
from onnxreg.cli.batch import read_jobs
from onnxreg.converters.request import ExportRequest
from onnxreg.converters.source.toolchain import free_memory
from onnxreg.registry import Registry
from onnxreg.schema.core.errors import ConflictError, ConversionError, HostError, InputError

Given = Callable[..., Path]
ROWS = tuple({"source": f"s{number}", "name": f"acme/m{number}"} for number in range(1, 4))
RUN = ("--registry", "r", "export", "--batch")
AGAIN = "run the same command again: what is done is not done again"


@pytest.fixture
def given(tmp_path: Path) -> Given:
    """Write a job file of these rows, each of which is what differs from an export by the android profile."""

    def write(*rows: Mapping[str, Any]) -> Path:
        path = tmp_path / "jobs.yaml"
        path.write_text(json.dumps([{"profile": "android", **row} for row in rows]))
        return path

    return write


@pytest.fixture
def exported(draft: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The failure of each model's job, in place of running it; a model that is not here is published."""
    found: dict[str, Any] = {}

    def plan(request: ExportRequest) -> Any:
        if isinstance(result := found.get(request.name or ""), BaseException):
            raise result
        return SimpleNamespace(name=request.name, warnings=lambda: ())

    def run_here(lines: Any, *_: Any) -> Iterator[Any]:
        for job, words in reversed(lines):
            died = isinstance(found.get(job.called), HostError)
            yield job, found[job.called] if died else batch.run_line(words)

    def run(plan: Any, workspace: Path, *_: Any) -> Any:
        return draft(workspace / "made", plan.name, plan.name), []

    monkeypatch.setattr(ExportRequest, "plan", plan)
    monkeypatch.setattr(batch, "_in_processes", run_here)
    monkeypatch.setattr("onnxreg.converters.request.run", run)
    return found


def test_a_batch_prints_a_row_for_each_job(reg, given, exported):
    done = reg(*RUN, given(*ROWS), "--push", "./share")
    assert done.status == 0, done.err
    said = [line.split()[:2] for line in done.err.splitlines()]
    assert said == [[f"acme/m{number}:0.1.0:", "published"] for number in (3, 2, 1)]
    head, *lines = [line.split()[:5] for line in done.out.splitlines()]
    assert head == ["ROW", "JOB", "STATUS", "VERSION", "PUSHED"]
    assert lines == [[str(n), f"acme/m{n}", "published", f"acme/m{n}:0.1.0", "yes"] for n in (1, 2, 3)]
    assert Registry("share", create=False).names() == Registry("r", create=False).names()
    again = reg(*RUN, given(*ROWS), "--push", "./share", "--json").json
    assert [job["status"] for job in again["jobs"]] == ["current"] * 3


def test_json_has_a_row_for_each_job_in_order(reg, given, exported):
    exported["acme/m2"] = ConversionError("it broke", "fix it")
    done = reg(*RUN, given(*ROWS), "--json")
    counts = {key: value for key, value in done.json.items() if key != "jobs"}
    assert counts == {"succeeded": 2, "failed": 1, "stopped": 0}
    first, second, third = done.json["jobs"]
    assert (first["row"], second["row"], third["row"]) == (1, 2, 3)
    assert set(first) == {"row", "job", "status", "ref", "digest", "pushed", "seconds", "error", "note"}
    assert (first["status"], first["ref"], first["error"]) == ("published", "acme/m1:0.1.0", None)
    assert second["status"] == "failed"
    assert second["error"] == {"family": "conversion", "message": "it broke", "hint": "fix it"}
    assert (done.status, done.error["family"]) == (7, "conversion")


@pytest.mark.parametrize(
    ("failures", "status"),
    [
        ({"acme/m1": ConflictError("x"), "acme/m3": ConflictError("y")}, 5),
        ({"acme/m1": ConflictError("x"), "acme/m3": InputError("y")}, 7),
        ({"acme/m2": HostError("its worker died")}, 9),
        ({"acme/m2": OSError(28, "No space left on device")}, 9),
        ({"acme/m2": TypeError("a bug")}, 1),
    ],
    ids=["one family", "several", "died", "full", "bug"],
)
def test_the_status_is_that_of_the_failures(failures, status, reg, given, exported):
    exported.update(failures)
    if status == 1:
        with pytest.raises(SystemExit, match="1"):
            reg(*RUN, given(*ROWS))
        return
    done = reg(*RUN, given(*ROWS))
    assert done.ended(
        status, f"error: {len(failures)} of 3 jobs failed\nhint: fix what failed, then {AGAIN}\n"
    )
    assert done.out.count("published") == 3 - len(failures)


def test_a_version_published_but_not_pushed_is_pushed_the_next_time(reg, given, exported):
    first = reg(*RUN, given(ROWS[0]), "--json").json["jobs"][0]
    assert (first["status"], first["ref"], first["pushed"]) == ("published", "acme/m1:0.1.0", False)
    job = reg(*RUN, given(ROWS[0]), "--push", "./share", "--json").json["jobs"][0]
    assert (job["status"], job["pushed"]) == ("published", True)


def test_the_outcome_says_that_the_bytes_are_yanked(reg, given, exported):
    reg(*RUN, given(ROWS[0]))
    Registry("r").yank("acme/m1:0.1.0", "leaks names")
    job = reg(*RUN, given(ROWS[0]), "--json").json["jobs"][0]
    assert (job["status"], job["ref"]) == ("current", "acme/m1:0.1.0")
    assert job["note"] == "0.1.0 is yanked: leaks names"
    reg(*RUN, given(ROWS[1]), "--push", "./share")
    Registry("share").yank("acme/m2:0.1.0")
    job = reg(*RUN, given(ROWS[1]), "--push", "./share", "--json").json["jobs"][0]
    assert (job["pushed"], job["note"]) == (True, "0.1.0 is yanked")


def test_ctrl_c_says_what_is_done(reg, given, monkeypatch):
    def run(lines: Any, *_: Any) -> Iterator[Any]:
        for job, _words in reversed(lines[1:]):
            yield job, InputError("wrong")
        raise KeyboardInterrupt

    monkeypatch.setattr(batch, "_in_processes", run)
    done = reg(*RUN, given(*ROWS))
    assert done.status == 130
    assert done.err.endswith(f"error: interrupted: 0 of 3 jobs are done\nhint: {AGAIN}\n")
    assert [line.split()[2] for line in done.out.splitlines()[1:]] == ["stopped", "failed", "failed"]


RECIPE = {
    "name": "acme/own",
    "source": "Acme/MiniLM",
    "task": "pooling",
    "steps": [{"name": "fp32", "pass": "OnnxConversion"}],
}
POOLING = {**ROWS[1], "profile": None, "task": "pooling"}
OWN = {"source": "s", "profile": None, "recipe": "own.yaml"}


WRONG: list[Any] = [
    ([ROWS[0], {**ROWS[1], "colour": "red"}], "row 2 is not valid at colour"),
    ([{**ROWS[0], "name": "X"}], "row 1 is not valid at name"),
    ([{**ROWS[0], "version": "1.0"}], "row 1 is not valid at version"),
    ([{**ROWS[0], "profile": None}], "nothing says what to make"),
    ([{**ROWS[0], "task": "t"}], "profile and task contradict each other"),
    ([{**OWN, "options": {"a": 1}}], "a recipe says its options itself"),
    ([{"name": "x"}], "there is no source"),
    ([ROWS[0], ROWS[1], ROWS[0]], "rows 1 and 3 both are acme/m1"),
    ([{**ROWS[0], "version": "1.0.0"}, ROWS[0]], "rows 1 and 2 both are acme/m1"),
    ([OWN, OWN], "rows 1 and 2 both are acme/own"),
    ([{"source": "Acme/MiniLM"}, {"source": "acme/minilm@main"}], "rows 1 and 2 both are acme/minilm"),
    ([{**ROWS[1], "options": {"colour": 1}}], "row 1: --colour is not an option of the profile android"),
    ([{**ROWS[1], "options": {"trust_remote_code": "x"}}], "row 1: --trust-remote-code is not an option"),
    ([{**ROWS[1], "options": {"max_seq_length": "long"}}], "is not valid at max_seq_length"),
    ([{**ROWS[1], "options": {"int8": "no"}}], "row 1: the option int8 takes true or false"),
    ([{**ROWS[1], "profile": "desktop"}], "row 1: no profile is called 'desktop'"),
    ([{**ROWS[1], "profile": None, "recipe": "none.yaml"}], "none.yaml"),
    ([{**ROWS[1], "profile": None, "task": "none"}], "row 1: no task is called 'none'"),
    ([{**POOLING, "options": {"opset": True}}], "row 1: the option opset takes a value"),
    (
        [{**ROWS[0], "source": "./none"}, {**ROWS[2], "source": "/no/where"}],
        "row 1: no such checkpoint directory: ./none; row 2: no such checkpoint directory: /no/where\nhint: give",
    ),
    ([{**ROWS[0], "options": {"eval_suite": "none.jsonl"}}], "row 1: there is no evaluation suite"),
]  # fmt: skip


@pytest.mark.parametrize(("rows", "fragment"), WRONG)
def test_a_wrong_row_stops_everything_before_it_begins(rows, fragment, reg, given, tmp_path):
    (tmp_path / "own.yaml").write_text(json.dumps(RECIPE))
    assert reg(*RUN, given(*rows)).ended(2, fragment)
    assert not Path("r").exists()


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("- words", "row 1 holds no keys"),
        ("source: a", "not a list of jobs"),
        ("[]", "holds no jobs"),
        ("- {source: a, source: b}", "the key 'source' occurs twice"),
    ],
)
def test_a_file_that_is_not_one(text, fragment, reg, tmp_path):
    (tmp_path / "wrong.yaml").write_text(text)
    assert reg(*RUN, "wrong.yaml").ended(2, fragment)


def test_paths_start_at_the_file(tmp_path):
    (tmp_path / "first").mkdir()
    for name in ("own.yaml", "golden.jsonl", "small.py"):
        (tmp_path / name).write_text("")
    (tmp_path / "jobs.yaml").write_text("""
- {source: ./first, name: acme/a, version: 1.0.0, profile: android, options: {max_seq_length: 128, int8: false, eval_suite: golden.jsonl}}
- {source: org/model@main, name: acme/b, task: token-classification}
- {source: "small.py:build", recipe: own.yaml}
- {source: "none.py:build", recipe: own.yaml}
""")
    first, *others = read_jobs(tmp_path / "jobs.yaml")
    assert first.called == "acme/a:1.0.0"
    words = "export --json --name=acme/a --version=1.0.0 --profile=android --max-seq-length=128 --no-int8"
    expected = [*words.split(), f"--eval-suite={tmp_path / 'golden.jsonl'}"]
    assert sorted(first.words()[:-2]) == sorted(expected)
    assert first.words()[-2:] == ["--", str(tmp_path / "first")]
    sources = ["org/model@main", str(tmp_path / "small.py:build"), "none.py:build"]
    assert [job.request.source for job in others] == sources
    assert all(job.request.recipe == tmp_path / "own.yaml" for job in others[1:])


@pytest.mark.parametrize(
    ("status", "words", "fragment"),
    table("""
        2 | --batch jobs.yaml source | --batch and SOURCE contradict each other
        2 | --batch jobs.yaml --name x | --batch and --name contradict each other
        2 | --batch jobs.yaml --output out | --batch and --output contradict each other
        2 | --batch jobs.yaml --no-int8 | --batch and --no-int8 contradict each other
        2 | --batch jobs.yaml --scheduler tcp://127.0.0.1:1 | --scheduler needs --push
        2 | --batch jobs.yaml --scheduler tcp://127.0.0.1:1 --push ./t | jobs.yaml: row 1: there is no version
    """),
)
def test_options_that_contradict_are_refused(status, words, fragment, reg, given):
    given(*ROWS)
    done = reg("export", *words)
    assert done.ended(status, fragment) and done.out == ""


def test_no_scheduler_answers_or_dask_is_missing(reg, given, monkeypatch):
    jobs = given({**ROWS[0], "version": "1.0.0"})
    words = (*RUN, jobs, "--scheduler", "tcp://127.0.0.1:1", "--push", "./t")
    monkeypatch.setattr(batch, "SCHEDULER_PATIENCE", "200ms")
    assert reg(*words).ended(6, "no Dask scheduler answers at tcp://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert reg(*words).ended(9, "[dask]")


def test_a_worker_answers_line_by_line_and_ends_when_nobody_asks():
    workers = batch.Workers()
    first = workers.run(["--version"], 0)
    workers.idle[0].process.kill()  # as Linux does when memory is short
    workers.idle[0].process.wait()
    second = workers.run(["show", "none", "--json"], 0)
    workers.idle[0].channel.close()
    assert workers.idle[0].process.wait(60) == 0
    assert (first["status"], first["out"][:4], second["status"]) == (0, "reg ", 3)
    assert json.loads(second["err"])["error"]["family"] == "not-found"


WORKER = f"""#!{sys.executable}
import ctypes, os, signal, sys, time
from onnxreg.cli import apart, batch

def run_line(words, actor):
    work = {{"sleep": lambda: time.sleep(60), "hang": hang, "die": lambda: os.kill(os.getpid(), 9), "do": dict}}[words[0]]
    return apart.run(lambda steps: steps.step(f"running {{words[0]}}") or work(), None) or time.sleep(0.5) or {{"status": 0}}

def hang():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.PyDLL(None).pause()

batch.run_line = run_line
batch.serve(int(sys.argv[-1]))
"""


def test_a_worker_that_hangs_or_dies_fails_its_job_only(given, tmp_path, monkeypatch):
    """The limit is that of a step: what follows the last step takes longer."""
    (tmp_path / "python").write_text(WORKER)
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(batch, "PATIENCE", 0.1)
    jobs = zip(
        read_jobs(given(*ROWS, {**ROWS[0], "name": "acme/m4"})), ("sleep", "hang", "die", "do"), strict=True
    )
    found = {
        job.row: answer
        for job, answer in batch._in_processes([(job, [word]) for job, word in jobs], 1, 0.005)
    }
    late = "a step took longer than 0.005 minutes, so the work was ended while running"
    assert [str(found[row]) for row in (1, 2)] == [f"{late} sleep", f"{late} hang"]
    assert str(found[3]) == "the process that did the work was ended by SIGKILL while running die"
    assert found[4] == {"status": 0}


@pytest.mark.skipif(sys.platform != "linux", reason="the memory that is free is read from /proc")
def test_memory_that_is_free(tmp_path):
    assert free_memory(tmp_path) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable: 8 kB\n")
    assert free_memory(tmp_path) == 8192
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    for limit, free in (("max", 8192), ("6000", 1000), ("4000", 0)):
        (group / "memory.max").write_text(f"{limit}\n")
        (group / "memory.current").write_text("5000\n")
        assert free_memory(tmp_path) == free


@pytest.mark.large
def test_real_jobs_are_published_once(reg, given, make_checkpoint, tmp_path, monkeypatch):
    """One is broken; the others are published and pushed, and done only once."""
    good, other = make_checkpoint(), make_checkpoint(seed=1)
    broken = Path(shutil.copytree(good, tmp_path / "broken"))
    (broken / "model.safetensors").write_bytes(b"no weights")
    rows = [
        {"source": str(good), "name": "acme/a", "version": "1.0.0"},
        {"source": str(broken), "name": "acme/b"},
        {"source": str(other), "name": "acme/c", "options": {"int8": False}},
    ]
    words = (*RUN, given(*rows), "--jobs", 2, "--push", "./share", "--json")
    first = reg(*words)
    assert (first.status, first.error["family"]) == (2, "input")
    jobs = first.json["jobs"]
    assert [job["status"] for job in jobs] == ["published", "failed", "published"]
    assert [job["pushed"] for job in jobs] == [True, False, True]
    assert list(Path("r/local/tmp").iterdir()) == []
    share = Registry("share", create=False)
    published = {(name, str(version)) for name in share.names() for version in share.state(name).versions}
    assert published == {("acme/a", "1.0.0"), ("acme/c", "0.1.0")}
    shown = reg("--registry", "r", "show", "acme/c", "--json").json["artifacts"]
    assert "int8" not in {artifact["precision"] for artifact in shown}

    (tmp_path / "poison").mkdir()
    (tmp_path / "poison" / "torch.py").write_text("raise RuntimeError('torch was imported')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "poison"), *sys.path]))
    again = reg(*RUN, given(rows[0], rows[2]), "--jobs", 2, "--push", "./share", "--json").json["jobs"]
    assert [job["status"] for job in again] == ["current", "current"]
    assert [job["digest"] for job in again] == [job["digest"] for job in jobs if job["digest"]]
    with pytest.raises(SystemExit):
        reg(*RUN, given({"source": str(good), "name": "acme/d"}), "--jobs", 1)
