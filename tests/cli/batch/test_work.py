"""One job: what is done already is not done again, and whatever goes wrong is in the outcome."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from onnxreg.cli.batch.jobs import Job
from onnxreg.cli.batch.work import BUG, Terms, run_job
from onnxreg.cli.services.export_request import ExportRequest
from onnxreg.converters.engine.plan import ProfilePromises
from onnxreg.registry import Registry
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.inputs.recipe_file import JobRow

Draft = Callable[..., Any]


@dataclass(frozen=True)
class Found:
    digest: Digest
    location: str = "not a directory"


@dataclass(frozen=True)
class Ordered:
    """As much of an order as a job needs: its source is told by the source's name."""

    name: str
    start: str
    promises: ProfilePromises = field(default_factory=ProfilePromises)
    recipe: Any = field(default_factory=lambda: SimpleNamespace(benchmark=None, search=None))

    @property
    def source(self) -> Found:
        return Found(Digest.of(self.start.encode()))

    def key(self) -> dict[str, Any]:
        return {"source": self.start}

    def recorded_recipe(self) -> dict[str, Any]:
        return {"task": "none"}

    def reads(self) -> None:
        return None


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, draft: Draft) -> list[str]:
    """The sources that were exported, call by call; a source called `broken` is a bug, `full` a full disk,
    `locked` a file that may not be read."""
    calls: list[str] = []

    def plan(request: ExportRequest) -> Ordered:
        return Ordered(request.name or "", request.source or "")

    def execute(order: Ordered, workspace: Path, cache: Any = None, progress: Any = None) -> Any:
        calls.append(order.start)
        if order.start == "broken":
            raise TypeError("a bug")
        if order.start == "full":
            raise OSError(28, "No space left on device")
        if order.start == "locked":
            raise OSError(13, "Permission denied", "model.onnx")
        made = draft(workspace / "made", order.name, order.start)
        steps = [step for step in made.fields["recipe"]["steps"] if "skipped" not in step]
        recipe = {**made.fields["recipe"], "steps": steps, "parameters": {"recipe": order.recorded_recipe()}}
        source = {"id": order.name, "digest": str(order.source.digest)}
        return replace(made, fields={**made.fields, "recipe": recipe, "source": source})

    monkeypatch.setattr(ExportRequest, "plan", plan)
    monkeypatch.setattr("onnxreg.converters.engine.run_plan.execute", execute)
    return calls


def job(source: str = "s", version: str | None = "1.0.0") -> Job:
    return Job(1, JobRow(source=source, name="acme/x", version=version, profile="android"))


def test_again_it_is_current(ran: list[str]) -> None:
    first, again = run_job(job(), Terms(Path("home"))), run_job(job(), Terms(Path("home")))
    assert (first.status, again.status, ran) == ("published", "current", ["s"])
    assert (first.ref, first.digest) == (again.ref, again.digest)
    assert not first.pushed


def test_events_name_who_started_the_jobs(ran: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REG_ACTOR", "the worker")
    for source, version, actor in (("s", "1.0.0", "ada"), ("t", "1.1.0", ""), ("u", "1.2.0", None)):
        run_job(job(source, version), Terms(Path("home"), actor=actor))
    events = [line.event for line in Registry("home").log("acme/x")]
    assert [event.actor for event in events if event.kind == "publish"] == ["ada", None, "the worker"]


def test_without_a_version_too(ran: list[str]) -> None:
    found = [run_job(job(source, None), Terms(Path("home"))) for source in ("a", "a", "b")]
    assert [each.ref for each in found] == ["acme/x:0.1.0", "acme/x:0.1.0", "acme/x:0.1.1"]
    assert ran == ["a", "b"]


def test_a_version_published_but_not_pushed_is_pushed(ran: list[str], tmp_path: Path) -> None:
    share = str(tmp_path / "share")
    lost = run_job(job(), Terms(Path("home"), "https://127.0.0.1:1/r"))
    assert (lost.status, lost.ref, lost.pushed) == ("failed", "acme/x:1.0.0", False)
    found = [run_job(job(), Terms(Path("home"), share)) for _ in range(2)]
    assert [(each.status, each.pushed) for each in found] == [("published", True), ("current", True)]
    assert ran == ["s"]
    assert Registry(share, create=False).names() == ["acme/x"]


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Terms]:
    """The terms of a worker on a machine of this name, whose registry is its own."""

    def move(machine: str) -> Terms:
        monkeypatch.setenv("REG_HOME", str(tmp_path / machine))
        return Terms(to=str(tmp_path / "share"))

    Registry(tmp_path / "share")
    return move


def test_the_outcome_says_that_the_bytes_are_yanked_or_not_the_newest(ran: list[str]) -> None:
    assert run_job(job(version="1.0.0"), Terms()).note == ""
    run_job(job("t", "1.1.0"), Terms())
    assert "1.1.0" in run_job(job(version=None), Terms()).note
    Registry().yank("acme/x:1.0.0", "leaks names")
    again = run_job(job(version=None), Terms())
    assert (again.status, again.ref) == ("current", "acme/x:1.0.0")
    assert "leaks names" in again.note


def test_another_worker_finds_it_in_the_remote(ran: list[str], elsewhere: Callable[[str], Terms]) -> None:
    first, again = run_job(job(), elsewhere("one")), run_job(job(), elsewhere("two"))
    assert (first.status, again.status, ran) == ("published", "current", ["s"])
    assert again.pushed
    assert (first.ref, first.digest) == (again.ref, again.digest)


def test_another_source_of_the_same_version_is_a_conflict(
    ran: list[str], elsewhere: Callable[[str], Terms]
) -> None:
    run_job(job(), elsewhere("one"))
    found = run_job(job("other"), elsewhere("two"))
    assert (found.status, found.family, ran) == ("failed", "conflict", ["s"])
    assert "made from another source" in found.message


def test_a_yanked_version_is_not_taken_for_done(
    ran: list[str], elsewhere: Callable[[str], Terms], tmp_path: Path
) -> None:
    run_job(job(), elsewhere("one"))
    Registry(tmp_path / "share").yank("acme/x:1.0.0")
    run_job(job(), elsewhere("two"))
    assert ran == ["s", "s"]


@pytest.mark.parametrize(
    ("source", "family", "told"),
    [
        ("full", "environment", "No space left on device"),
        ("locked", "environment", "model.onnx: Permission denied"),
        ("broken", BUG, "TypeError: a bug"),
    ],
)
def test_errors_are_in_the_outcome(source: str, family: str, told: str, ran: list[str]) -> None:
    found = run_job(job(source), Terms(Path("home")))
    assert (found.status, found.family, found.ref) == ("failed", family, None)
    assert told in found.message
    assert ("Traceback" in found.hint) == (family == BUG)
    assert list(Path("home/local/tmp").iterdir()) == []
