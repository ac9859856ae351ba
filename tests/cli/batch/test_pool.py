"""Work in processes: each result comes, and a death takes one piece of work with it."""

import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.batch import pool_work

from onnxreg.cli.batch import pool
from onnxreg.cli.batch.pool import run_all
from onnxreg.schema.core.errors import HostError


def results(work: Callable[[Any], Any], items: list[Any], count: int) -> dict[Any, Any]:
    return dict(run_all(work, items, count))


@pytest.mark.more
def test_every_item_is_done_once() -> None:
    assert results(pool_work.double, list(range(20)), 3) == {number: 2 * number for number in range(20)}


def test_a_process_does_one_piece_after_the_other() -> None:
    found = set(results(pool_work.pid, list(range(8)), 2).values())
    assert 1 <= len(found) <= 2


def test_no_items_no_processes() -> None:
    assert results(pool_work.double, [], 3) == {}


def test_a_dead_worker_fails_its_own_work_only() -> None:
    found = results(pool_work.double_unless_odd, list(range(7)), 2)
    for number, result in found.items():
        if number % 2:
            assert isinstance(result, HostError)
            assert result.message == "its worker died: it was ended by SIGKILL"
        else:
            assert result == 2 * number
    assert len(found) == 7


def test_a_process_that_leaves_is_told_by_its_status() -> None:
    assert results(pool_work.leave, [3], 1)[3].message == "its worker died: it ended with status 3"


def test_stdout_belongs_to_the_process_that_started_it(capfd: pytest.CaptureFixture[str]) -> None:
    assert results(pool_work.print_much, [1], 1) == {1: True}
    assert capfd.readouterr().out == ""


def begin(work: Callable[[Path], None], directory: Path) -> None:
    """Close the iterator as soon as both processes began."""
    directory.mkdir()
    stop = run_all(work, [directory, directory, directory], 2)

    def wait_for_both(pipes: Any) -> Any:
        while len(list(directory.iterdir())) < 2:
            time.sleep(0.01)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, closing(stop), pytest.raises(KeyboardInterrupt):
        patch.setattr(pool, "wait", wait_for_both)
        next(stop)


@pytest.mark.more
def test_closing_lets_workers_clear_away(tmp_path: Path) -> None:
    begin(pool_work.clear_away, tmp_path / "begun")
    assert list((tmp_path / "begun").iterdir()) == []


def test_a_worker_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "PATIENCE", 0.2)
    begin(pool_work.refuse_to_end, tmp_path / "begun")
    for path in (tmp_path / "begun").iterdir():
        assert not Path("/proc", path.name).exists() or sys.platform != "linux"
