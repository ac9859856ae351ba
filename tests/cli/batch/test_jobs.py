"""Reading a job file: both forms mean the same, and a mistake names its row before anything runs."""

from pathlib import Path

import pytest

from onnxreg.cli.batch.jobs import read_jobs, refuse_twins
from onnxreg.schema.core.errors import InputError, NotFoundError

YAML = """
- {source: ./first, name: acme/a, version: 1.0.0, profile: android, options: {max_seq_length: 128, int8: false}}
- {source: org/model@main, name: acme/b, task: token-classification}
- {recipe: recipes/own.yaml}
"""
CSV = """source,name,version,profile,recipe,task,options.max_seq_length,options.int8
./first,acme/a,1.0.0,android,,,128,false
org/model@main,acme/b,,,,token-classification,,
,,,,recipes/own.yaml,,,
"""


def write(directory: Path, text: str, name: str = "jobs.yaml") -> Path:
    path = directory / name
    path.write_text(text, "utf-8")
    return path


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """A directory with a checkpoint and a recipe, which is not the working directory."""
    place = tmp_path / "fleet"
    (place / "first").mkdir(parents=True)
    (place / "recipes").mkdir()
    (place / "recipes" / "own.yaml").write_text("")
    return place


def test_yaml_and_csv_mean_the_same(fleet: Path) -> None:
    jobs = read_jobs(write(fleet, YAML))
    assert jobs == read_jobs(write(fleet, CSV, "jobs.csv"))
    assert [job.row for job in jobs] == [1, 2, 3]
    assert [job.called for job in jobs] == ["acme/a:1.0.0", "acme/b", str(fleet / "recipes/own.yaml")]
    assert jobs[0].request.options == {"max_seq_length": 128, "int8": False}


def test_paths_start_at_the_file_and_hub_ids_stay(fleet: Path) -> None:
    first, second, third = (job.request for job in read_jobs(write(fleet, YAML)))
    assert first.source == str(fleet / "first")
    assert second.source == "org/model@main"
    assert third.recipe == str(fleet / "recipes" / "own.yaml")


def test_a_factory_in_a_file_lies_beside_the_job_file(fleet: Path) -> None:
    (fleet / "nets").mkdir()
    (fleet / "nets" / "small.py").write_text("")
    rows = "".join(
        f"- {{source: '{source}', recipe: r.yaml}}\n"
        for source in ("nets/small.py:build", "nets/none.py:build", "nets.small:build")
    )
    assert [job.request.source for job in read_jobs(write(fleet, rows))] == [
        str(fleet / "nets" / "small.py:build"),
        "nets/none.py:build",
        "nets.small:build",
    ]


def test_a_suite_lies_beside_the_file_too(fleet: Path) -> None:
    (fleet / "golden.jsonl").write_text("")
    row = "- {source: a, name: b, profile: android, options: {eval_suite: golden.jsonl}}"
    (job,) = read_jobs(write(fleet, row))
    assert job.request.options == {"eval_suite": str(fleet / "golden.jsonl")}


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (
            "- {source: a, name: x, profile: android, colour: red}",
            "row 1 is not valid at colour: there is no such key",
        ),
        (
            "- {source: a, profile: android}\n- {source: b, name: X, profile: android}",
            "row 2 is not valid at name",
        ),
        ("- {source: a, name: x, version: '1.0', profile: android}", "row 1 is not valid at version"),
        ("- {source: a, name: x, version: 1.0, profile: android}", "row 1 is not valid at version"),
        ("- {source: a, name: x}", "nothing says what to make"),
        ("- {source: a, profile: android, task: t}", "profile and task contradict each other"),
        ("- {source: a, recipe: r.yaml, options: {a: 1}}", "a recipe says its options itself"),
        ("- {name: x, profile: android}", "there is no source"),
        ("- words", "row 1 holds no keys"),
        ("source: a", "not a list of jobs"),
        ("[]", "holds no jobs"),
        ("- {source: a, source: b}", "the key 'source' occurs twice"),
    ],
)
def test_a_wrong_row_is_named(rows: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_jobs(write(tmp_path, rows))
    assert told in caught.value.message


@pytest.mark.parametrize(
    ("versions", "rows"),
    [
        (["1.0.0", "1.0.0"], "rows 1 and 2"),
        (["1.0.0", "1.1.0", "1.0.0"], "rows 1 and 3"),
        ([None, None], "rows 1 and 2"),
        ([None, "1.0.0"], "rows 1 and 2"),
        (["1.0.0", None], "rows 1 and 2"),
    ],
)
def test_two_rows_cannot_be_the_same_version(versions: list[str | None], rows: str, tmp_path: Path) -> None:
    lines = [
        f"- {{source: s{number}, name: acme/a, profile: android{f', version: {version}' if version else ''}}}"
        for number, version in enumerate(versions)
    ]
    jobs = read_jobs(write(tmp_path, "\n".join(lines)))
    with pytest.raises(InputError, match=f"{rows} both are acme/a"):
        refuse_twins(jobs, ["acme/a"] * len(jobs), "jobs.yaml")
    refuse_twins(jobs, [f"acme/{job.row}" for job in jobs], "jobs.yaml")


def test_versions_of_one_model_may_be_many(tmp_path: Path) -> None:
    lines = [f"- {{source: s, name: acme/a, profile: android, version: 1.{n}.0}}" for n in range(5)]
    jobs = read_jobs(write(tmp_path, "\n".join(lines)))
    refuse_twins(jobs, ["acme/a"] * 5, "jobs.yaml")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("source,colour,profile\na,red,android\n", "row 1 is not valid at colour"),
        ("source,profile\na\n", "row 1 has not as many cells"),
        ("source,profile\na,android,more\n", "row 1 has not as many cells"),
        ("source,source\na,b\n", "there are two columns 'source'"),
        ('source,profile\n"a,android\n', "is not a CSV file"),
        ("", "holds no jobs"),
    ],
)
def test_a_wrong_csv_file(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_jobs(write(tmp_path, text, "jobs.csv"))
    assert told in caught.value.message


def test_a_spreadsheet_begins_with_a_mark(tmp_path: Path) -> None:
    (job,) = read_jobs(write(tmp_path, "\ufeffsource,name,profile\na,x,android\n", "jobs.CSV"))
    assert job.request.source == "a"


@pytest.mark.parametrize("name", ["none.yaml", "none.csv"])
def test_no_file(name: str, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="there is no job file"):
        read_jobs(tmp_path / name)
