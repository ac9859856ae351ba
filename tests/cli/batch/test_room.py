"""How many exports fit: by jobs, cores and free memory."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from onnxreg.cli.batch import pool
from onnxreg.cli.batch.jobs import Job
from onnxreg.cli.services.export_service import free_memory
from onnxreg.schema.inputs.recipe_file import JobRow

GB = 10**9


def job(source: Path | str) -> Job:
    return Job(1, JobRow(source=str(source), name="x", profile="android"))


def weights(directory: Path, *sizes: int) -> Path:
    """A checkpoint whose weights are holes of these sizes, in shards where there are several."""
    directory.mkdir()
    names = (
        [f"model-{index}.safetensors" for index in range(len(sizes))]
        if len(sizes) > 1
        else ["model.safetensors"]
    )
    for name, size in zip(names, sizes, strict=True):
        with (directory / name).open("wb") as file:
            file.truncate(size)
    if len(sizes) > 1:
        table = ",".join(f'"w{index}":"{name}"' for index, name in enumerate(names))
        (directory / "model.safetensors.index.json").write_text(f'{{"weight_map":{{{table}}}}}')
    return directory


def test_the_need_grows_with_the_weights_that_are_read(tmp_path: Path) -> None:
    small, large = weights(tmp_path / "a", GB), weights(tmp_path / "b", 3 * GB)
    shards = weights(tmp_path / "c", GB, 2 * GB)
    (small / "optimizer.pt").write_bytes(b"0" * 1000)
    each = pool.need(job(large)) - pool.need(job(small))
    assert each == 2 * GB * pool.COPIES
    assert abs(pool.need(job(shards)) - pool.need(job(large))) < 10**4
    assert pool.need(job("org/model")) == pool.FRAMEWORKS + pool.COPIES * pool.UNKNOWN


@pytest.mark.parametrize(
    ("free", "cores", "jobs", "expected"),
    [(None, 4, 9, 4), (None, 4, 2, 2), (100, 8, 9, 8), (20, 8, 9, 3), (1, 8, 9, 1), (0, 8, 9, 1)],
)
def test_the_least_of_jobs_cores_and_memory(
    free: int | None, cores: int, jobs: int, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet: Sequence[Job] = [
        job(weights(tmp_path / str(number), GB if number else GB // 9)) for number in range(jobs)
    ]
    monkeypatch.setattr(pool, "count_cores", lambda: cores)
    monkeypatch.setattr(pool, "free_memory", lambda: None if free is None else free * GB)
    assert pool.processes(fleet) == expected


def host(root: Path, available: int | None, limit: str | None = None) -> Path:
    if available is not None:
        (root / "proc").mkdir(parents=True)
        (root / "proc/meminfo").write_text(f"MemTotal: 99999999 kB\nMemAvailable:   {available} kB\n")
    if limit is not None:
        group = root / "sys/fs/cgroup"
        group.mkdir(parents=True)
        (group / "memory.max").write_text(f"{limit}\n")
        (group / "memory.current").write_text("4096\n")
    return root


@pytest.mark.parametrize(
    ("available", "limit", "expected"),
    [
        (1000, None, 1000 * 1024),
        (1000, "max", 1000 * 1024),
        (1000, "10240", 6144),
        (1, "10240", 1024),
        (1000, "100", 0),
        (None, None, None),
    ],
)
def test_a_container_has_what_its_group_leaves(
    available: int | None, limit: str | None, expected: int | None, tmp_path: Path
) -> None:
    assert free_memory(host(tmp_path, available, limit)) == expected
