"""`reg export --batch`: what it refuses before anything runs, and what it says of what became of each job."""

import json
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.registries import retrained

from onnxreg.cli.batch import cluster, pool
from onnxreg.cli.batch.work import JobOutcome
from onnxreg.registry import Registry
from onnxreg.schema.core.errors import ConflictError, ConversionError, HostError, InputError, RegError

Reg = Callable[..., Any]
Make = Callable[..., Path]
Given = Callable[..., Path]


@pytest.fixture
def given(tmp_path: Path) -> Given:
    """Write a job file of these rows, each of which is what differs from an export by the android profile."""

    def write(*rows: Mapping[str, Any]) -> Path:
        path = tmp_path / "jobs.yaml"
        path.write_text(json.dumps([{"profile": "android", **row} for row in rows]))
        return path

    return write


@pytest.fixture
def outcomes(monkeypatch: pytest.MonkeyPatch) -> dict[int, Any]:
    """What becomes of each row, in place of running it; a row that is not here is published."""
    found: dict[int, Any] = {}

    def run_all(work: Any, jobs: Any, *_: Any) -> Any:
        for job in reversed(list(jobs)):
            done = JobOutcome(
                job.row, job.called, "published", f"{job.request.name}:0.1.0", "sha256:00", seconds=2
            )
            result = found.get(job.row, done)
            if isinstance(result, KeyboardInterrupt):
                raise result
            died = isinstance(result, JobOutcome | HostError)
            yield job, result if died else done.with_error(result)

    monkeypatch.setattr(pool, "run_all", run_all)
    monkeypatch.setattr(cluster, "run_all", run_all)
    return found


ROWS = tuple({"source": f"s{number}", "name": f"acme/m{number}"} for number in range(1, 4))
RUN = ("--registry", "r", "export", "--batch")


def test_a_suite_that_proves_little_is_said_before_anything_runs(
    reg: Reg, given: Given, outcomes: dict[int, Any], tmp_path: Path
) -> None:
    span = {"start": 0, "end": 4, "label": "NAME"}
    (tmp_path / "thin.json").write_text(json.dumps([{"id": "1", "text": "Anna", "gold_spans": [span]}]))
    suite = {"eval_suite": "thin.json"}
    rows = [{**ROWS[0], "options": suite}, ROWS[1], {**ROWS[2], "options": suite}]
    done = reg(*RUN, given(*rows))
    warning = "warning: rows 1, 3: the suite has fewer than 200 gold characters of NAME"
    assert done.status == 0 and done.err.splitlines()[0].startswith(warning)


def test_a_batch_prints_a_row_for_each_job(reg: Reg, given: Given, outcomes: dict[int, Any]) -> None:
    done = reg(*RUN, given(*ROWS))
    assert done.status == 0
    assert done.err.splitlines() == [f"acme/m{number}:0.1.0: published in 2 s" for number in (3, 2, 1)]
    assert [line.split() for line in done.out.splitlines()] == [
        ["ROW", "JOB", "STATUS", "VERSION", "TIME"],
        *(
            [str(number), f"acme/m{number}", "published", f"acme/m{number}:0.1.0", "2", "s"]
            for number in (1, 2, 3)
        ),
    ]


@pytest.mark.usefixtures("outcomes")
def test_a_batch_makes_deltas_as_other_publications_do(
    reg: Reg, given: Given, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry(tmp_path / "r")
    for step, version in enumerate(("0.0.9", "0.1.0")):
        registry.add(retrained.draft(tmp_path / f"draft{step}", step), version)
    rows = given({"source": "s", "name": "acme/pii"})
    words = ("--registry", registry.store.root, "export", "--batch", rows)
    monkeypatch.setenv("REG_DELTAS", "many")
    assert reg(*words).status == 2
    monkeypatch.setenv("REG_DELTAS", "1")
    done = reg(*words)
    assert done.status == 0 and "acme/pii:0.1.0 offers" in done.out
    assert any(entry.deltas for entry in registry.state("acme/pii").versions.values())


def test_json_has_a_row_for_each_job_in_order(reg: Reg, given: Given, outcomes: dict[int, Any]) -> None:
    outcomes[2] = ConversionError("it broke", "mend it")
    done = reg(*RUN, given(*ROWS), "--json")
    value = done.json
    assert set(value) == {"jobs", "succeeded", "failed", "stopped"}
    assert (value["succeeded"], value["failed"], value["stopped"]) == (2, 1, 0)
    assert [job["row"] for job in value["jobs"]] == [1, 2, 3]
    first, second, _ = value["jobs"]
    assert set(first) == {"row", "job", "status", "ref", "digest", "pushed", "seconds", "error", "note"}
    assert (first["status"], first["ref"], first["error"]) == ("published", "acme/m1:0.1.0", None)
    assert second["status"] == "failed"
    assert second["error"] == {"family": "conversion", "message": "it broke", "hint": "mend it"}
    assert (done.status, done.error["family"]) == (7, "conversion")


@pytest.mark.parametrize(
    ("failures", "status"),
    [
        ({1: ConflictError("x"), 3: ConflictError("y")}, 5),
        ({1: ConflictError("x"), 3: InputError("y")}, 7),
        ({2: HostError("its worker died")}, 9),
        ({2: RegError("a bug", "Traceback of it")}, 1),
    ],
    ids=["one family", "several", "died", "bug"],
)
def test_the_status_is_that_of_the_failures(
    failures: dict[int, Any], status: int, reg: Reg, given: Given, outcomes: dict[int, Any]
) -> None:
    outcomes.update(failures)
    if status == 1:
        with pytest.raises(SystemExit) as left:
            reg(*RUN, given(*ROWS))
        assert left.value.code == 1
        return
    done = reg(*RUN, given(*ROWS))
    assert done.status == status
    assert done.err.endswith(
        f"error: {len(failures)} of 3 jobs failed\n"
        "hint: fix what failed, then run the same command again: what is done is not done again\n"
    )
    assert done.out.count("published") == 3 - len(failures)


def test_ctrl_c_says_what_is_done(reg: Reg, given: Given, outcomes: dict[int, Any]) -> None:
    outcomes[1] = KeyboardInterrupt()
    done = reg(*RUN, given(*ROWS))
    assert done.status == 130
    assert done.err.endswith(
        "error: interrupted: 2 of 3 jobs are done\nhint: run the same command again: what is done is not done again\n"
    )
    assert [line.split()[2] for line in done.out.splitlines()[1:]] == ["stopped", "published", "published"]


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([ROWS[0], {"source": "s", "name": "x", "colour": "red"}], "jobs.yaml: row 2 is not valid at colour"),
        ([ROWS[0], ROWS[1], ROWS[0]], "rows 1 and 3 both are acme/m1"),
        (
            [ROWS[0], {**ROWS[1], "options": {"colour": 1}}],
            "row 2: the profile android has no option 'colour'",
        ),
        (
            [{**ROWS[1], "options": {"max_seq_length": "long"}}],
            "row 1: an option of the profile android is not valid at max_seq_length: it must be a valid integer",
        ),
        (
            [{**ROWS[1], "options": {"int8": "no"}}],
            "row 1: an option of the profile android is not valid at int8: it must be a valid boolean",
        ),
        (
            [{**ROWS[1], "options": {"trust_remote_code": True}}],
            "row 1: the profile android has no option 'trust_remote_code'",
        ),
        ([{**ROWS[1], "options": {"opset": 9}}], "row 1: the android profile has opset 18"),
        ([{**ROWS[1], "profile": "desktop"}], "row 1: no profile is called 'desktop'"),
        ([{**ROWS[1], "profile": None, "recipe": "none.yaml"}], "none.yaml"),
        ([{**ROWS[1], "profile": None, "task": "none"}], "row 1: no task is called 'none'"),
        (
            [{**ROWS[0], "source": "./none"}, ROWS[1], {**ROWS[2], "source": "/no/where"}],
            "row 1: no such checkpoint directory: ./none; row 3: no such checkpoint directory: /no/where\nhint: give",
        ),
        (
            [{**ROWS[0], "options": {"eval_suite": "none.jsonl"}}],
            "row 1: there is no evaluation suite none.jsonl",
        ),
        (
            [{**ROWS[0], "source": "./none", "profile": None, "task": "pooling"}],
            "row 1: no such checkpoint directory: ./none",
        ),
    ],
)
def test_a_wrong_row_stops_everything_before_it_begins(
    rows: list[dict[str, Any]], told: str, reg: Reg, given: Given, outcomes: dict[int, Any]
) -> None:
    done = reg(*RUN, given(*rows))
    assert done.status == 2
    assert told in done.err
    assert not Path("r").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["source"], "--batch and SOURCE contradict each other"),
        (["--name", "x"], "--batch and --name contradict each other"),
        (["--profile", "android"], "--batch and --profile contradict each other"),
        (["--output", "out"], "--batch and --output contradict each other"),
        (["--no-rewrite"], "--batch and --no-rewrite contradict each other"),
        (["--max-seq-length", "9"], "--batch and --max-seq-length contradict each other"),
        (["--scheduler", "tcp://127.0.0.1:1"], "--scheduler needs --to"),
        (["--scheduler", "tcp://127.0.0.1:1", "--to", "./t"], "jobs.yaml: row 1: there is no version"),
    ],
)
def test_options_that_contradict_are_refused(
    words: list[str], told: str, reg: Reg, given: Given, outcomes: dict[int, Any]
) -> None:
    done = reg(*RUN, given(*ROWS), *words)
    assert (done.status, done.out) == (2, "")
    assert told in done.err


@pytest.mark.parametrize("words", [["--jobs", 2], ["--to", "./t"], ["--scheduler", "tcp://127.0.0.1:1"]])
def test_options_of_batches_need_batch(words: list[Any], reg: Reg) -> None:
    done = reg("--registry", "r", "export", "s", "--profile", "android", *words)
    assert done.status == 2
    assert f"{words[0]} goes with --batch" in done.err


def test_no_scheduler_answers(reg: Reg, given: Given) -> None:
    rows = ({**ROWS[0], "version": "1.0.0"},)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "PATIENCE", "200ms")
        done = reg(*RUN, given(*rows), "--scheduler", "tcp://127.0.0.1:1", "--to", "./t")
    assert done.status == 6
    assert "no Dask scheduler answers at tcp://127.0.0.1:1" in done.err


def test_dask_is_an_extra(reg: Reg, given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    rows = ({**ROWS[0], "version": "1.0.0"},)
    done = reg(*RUN, given(*rows), "--scheduler", "tcp://127.0.0.1:1", "--to", "./t")
    assert done.status == 9
    assert "[dask]" in done.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"task": "pooling", "options": {"colour": 1}}, "a task has no option 'colour'"),
        ({"task": "pooling", "options": {"quantize": "yes"}}, "the option quantize is not true or false"),
        ({"task": "pooling", "options": {"opset": True}}, "the option opset is not a number"),
    ],
)
def test_options_of_a_task(
    row: dict[str, Any], told: str, reg: Reg, given: Given, outcomes: dict[int, Any]
) -> None:
    done = reg(*RUN, given({**ROWS[0], "profile": None, **row}))
    assert done.status == 2
    assert f"row 1: {told}" in done.err


def test_two_recipes_that_name_the_same_model(
    reg: Reg, given: Given, outcomes: dict[int, Any], tmp_path: Path
) -> None:
    recipe = {"name": "acme/own", "task": "pooling", "steps": [{"name": "fp32", "pass": "OnnxConversion"}]}
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(json.dumps(recipe))
    done = reg(
        *RUN, given(*({"source": "s", "profile": None, "recipe": name} for name in ("a.yaml", "b.yaml")))
    )
    assert done.status == 2
    assert "rows 1 and 2 both are acme/own" in done.err


@pytest.mark.parametrize("what", ["profile", "task", "recipe"])
def test_two_rows_without_a_name_of_one_hub_id(
    what: str, reg: Reg, given: Given, outcomes: dict[int, Any], tmp_path: Path
) -> None:
    recipe = {
        "source": "Acme/MiniLM",
        "task": "pooling",
        "steps": [{"name": "fp32", "pass": "OnnxConversion"}],
    }
    (tmp_path / "own.yaml").write_text(json.dumps(recipe))
    about = {
        "profile": None,
        **{"profile": {"profile": "android"}, "task": {"task": "pooling"}}.get(what, {}),
    }
    rows = [{**about, "source": source} for source in ("Acme/MiniLM", "acme/minilm@main")]
    if what == "recipe":
        rows = [{"profile": None, "recipe": "own.yaml"}, {**rows[1], "recipe": "own.yaml"}]
    done = reg(*RUN, given(*rows))
    assert done.status == 2
    assert "rows 1 and 2 both are acme/minilm" in done.err
    versions = ({**row, "version": f"1.{minor}.0"} for minor, row in enumerate(rows))
    assert reg(*RUN, given(*versions)).status == 0


@pytest.fixture
def no_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that are started from now on fail where they need torch."""
    (tmp_path / "poison").mkdir()
    (tmp_path / "poison" / "torch.py").write_text("raise RuntimeError('torch was imported')")
    monkeypatch.syspath_prepend(tmp_path / "poison")


@pytest.mark.more
def test_real_jobs_are_published_once(
    reg: Reg, given: Given, make_checkpoint: Make, tmp_path: Path, request: Any
) -> None:
    """One is broken; the others are published and pushed, and done only once."""
    good, other = make_checkpoint(), make_checkpoint(seed=1)
    broken = Path(shutil.copytree(good, tmp_path / "broken"))
    (broken / "model.safetensors").write_bytes(b"no weights")
    rows = [
        {"source": str(good), "name": "acme/a", "version": "1.0.0"},
        {"source": str(broken), "name": "acme/b"},
        {"source": str(other), "name": "acme/c", "options": {"int8": False}},
    ]
    words = (*RUN, given(*rows), "--jobs", 2, "--to", "./share", "--json")
    first = reg(*words)
    assert (first.status, first.error["family"]) == (2, "input")
    jobs = first.json["jobs"]
    assert [job["status"] for job in jobs] == ["published", "failed", "published"]
    assert [job["pushed"] for job in jobs] == [True, False, True]
    assert list(Path("r/local/tmp").iterdir()) == []
    share = Registry("share", create=False)
    there = {(name, str(version)) for name in share.names() for version in share.state(name).versions}
    assert there == {("acme/a", "1.0.0"), ("acme/c", "0.1.0")}
    shown = reg("--registry", "r", "show", "acme/c", "--json").json["artifacts"]
    assert "int8" not in {artifact["precision"] for artifact in shown}

    request.getfixturevalue("no_torch")
    again = reg(*RUN, given(rows[0], rows[2]), "--jobs", 2, "--to", "./share", "--json").json["jobs"]
    assert [job["status"] for job in again] == ["current", "current"]
    assert [job["digest"] for job in again] == [job["digest"] for job in jobs if job["digest"]]
    with pytest.raises(SystemExit):
        reg(*RUN, given({"source": str(good), "name": "acme/d"}), "--jobs", 1)
