"""`.npz` files: plain arrays are read, everything else is refused by the file's name."""

import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from onnxreg.converters.runtime.golden import check_finite, read_arrays, read_rows
from onnxreg.schema.core.errors import InputError, NotFoundError


def archive(**members: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        for name, data in members.items():
            file.writestr(f"{name}.npy", data)
    return made.getvalue()


def saved(array: np.ndarray) -> bytes:
    made = io.BytesIO()
    np.save(made, array)
    return made.getvalue()


BROKEN = {
    "nothing": b"",
    "text": b"a text",
    "a pickle": pickle.dumps({"a": 1}),
    "one array": saved(np.zeros(3)),
    "half of it": archive(a=saved(np.zeros(100)))[:200],
    "objects": archive(a=saved(np.array([{}], dtype=object))),
    "no array": archive(a=b"a text"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_files_other_than_plain_arrays_are_refused(tmp_path: Path, what: str) -> None:
    with pytest.raises(NotFoundError, match=r"there is no file rows\.npz"):
        read_arrays(tmp_path / "rows.npz")
    (tmp_path / "rows.npz").write_bytes(BROKEN[what])
    with pytest.raises(InputError, match=r"rows\.npz is not an \.npz file of plain arrays"):
        read_arrays(tmp_path / "rows.npz")


@pytest.mark.parametrize("shapes", [[(3,), (4,)], [(3,), ()], [()], []])
def test_arrays_of_rows_are_equally_many(tmp_path: Path, shapes: list[tuple[int, ...]]) -> None:
    np.savez(tmp_path / "rows.npz", **{f"a{place}": np.zeros(shape) for place, shape in enumerate(shapes)})
    with pytest.raises(InputError, match=r"rows\.npz: its arrays do not have the same number of rows"):
        read_rows(tmp_path / "rows.npz")


def test_rows_come_as_they_were_written(tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", a=np.arange(6.0).reshape(3, 2), b=np.array(["x", "y", "z"]))
    found = read_rows(tmp_path / "rows.npz")
    assert found["a"].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert found["b"].tolist() == ["x", "y", "z"]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_are_refused(value: float) -> None:
    check_finite(np.array([1.0]), "a")
    check_finite(np.array(["nan"]), "a")
    with pytest.raises(InputError, match="a holds NaN or infinity"):
        check_finite(np.array([1.0, value]), "a")
