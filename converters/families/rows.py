"""The rows that a family is fitted and measured on, and the outputs of its graphs for them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from onnxreg.converters.families.head_checkpoints import member_of
from onnxreg.converters.families.head_graphs import INPUT
from onnxreg.converters.passes.tools import samples
from onnxreg.converters.passes.tools.samples import digest
from onnxreg.converters.runtime import npz
from onnxreg.converters.runtime.npz import Arrays, check_finite
from onnxreg.schema.core.errors import InputError

RowKeys = tuple[bytes, ...]
"""A key for each row, in order; equal rows have equal keys."""

BATCH_ROWS = 64
HELD_OUT_HINT = "hold out other rows: of those that made it a detector rejects far fewer than it says"


@dataclass(frozen=True)
class HeldOut:
    """Rows that nobody trained on: `input`, `species` and `head:<id>`, and their digest."""

    rows: Arrays
    dataset: str
    name: str = "evaluation"

    @classmethod
    def read(cls, path: Path) -> "HeldOut":
        rows = read_rows(path, "input", "species")
        return cls({_key(name): array for name, array in rows.items()}, str(digest([rows])), path.name)

    def images(self, shape: Sequence[int]) -> Any:
        """Return `input` as float32 `[n, *shape]`; InputError if it has another shape."""
        return as_float32(self.rows["input"], shape, f"{self.name}: input")

    def check_heads(self, names: Collection[str]) -> None:
        """Raise InputError for an array `head:<id>` of another head: nothing would be judged by it."""
        if unknown := sorted(name for name in self.rows if name.startswith("head:") and name not in names):
            raise InputError(
                f"the held-out array {unknown[0][:80]} belongs to no head",
                f"heads are {', '.join(names)[:300]}",
            )


@dataclass(frozen=True)
class RowEmbeddings:
    """A backbone's `outputs` for the rows of the file `name`; `embedding` is float32 `[n, d]`.

    `keys` are those of the rows in the file. `stored` is True if the file has embeddings, of any backbone.
    `dataset` is the digest of all arrays.
    """

    name: str
    dataset: str
    keys: RowKeys
    outputs: Arrays
    stored: bool = False

    @property
    def embeddings(self) -> Any:
        return self.outputs[INPUT]

    def check_apart(self, used: "RowEmbeddings") -> None:
        """Raise InputError if both have a row: rows that made a detector say nothing about it."""
        if self.dataset == used.dataset:
            raise InputError(f"ood: {self.name} and {used.name} are one set, {self.dataset}", HELD_OUT_HINT)
        if count := max(
            shared(self.keys, used.keys), shared(keys_of(self.embeddings), keys_of(used.embeddings))
        ):
            raise InputError(
                f"ood: {self.name} shares {count} of its {len(self.keys)} rows with {used.name}, "
                "which made the detector",
                HELD_OUT_HINT,
            )


class Embedder:
    """A backbone in a session, for the files of rows in `directory`: each file goes through it once."""

    def __init__(self, session: Any, directory: Path) -> None:
        self._session, self._directory = session, directory
        self.embed_images = cache(self._embed_images)

    def embed(self, path: str) -> RowEmbeddings:
        """Return the embeddings of a file's rows: stored as `embedding`, or made from `input`.

        Raises InputError if the file has neither, or of another shape than the backbone's.
        """
        rows = read_rows(self._directory / path)
        if "embedding" not in rows:
            return self.embed_images(path)
        width = next(item.shape[1] for item in self._session.get_outputs() if item.name == INPUT)
        name = Path(path).name
        embeddings = as_float32(rows["embedding"], (width,), f"{name}: embedding")
        return RowEmbeddings(name, str(digest([rows])), keys_of(embeddings), {INPUT: embeddings}, stored=True)

    def _embed_images(self, path: str) -> RowEmbeddings:
        """Run the backbone on a file's `input`, even if it has embeddings too."""
        rows, name = read_rows(self._directory / path), Path(path).name
        if "input" not in rows:
            raise InputError(f"{name} has neither an array called input nor one called embedding")
        images = as_float32(rows["input"], self._session.get_inputs()[0].shape[1:], f"{name}: input")
        return RowEmbeddings(name, str(digest([rows])), keys_of(images), outputs_of(self._session, images))


def outputs_of(session: Any, rows: Any) -> Arrays:
    """Run a graph of one input on rows, in batches; return all outputs."""
    import numpy as np

    name = session.get_inputs()[0].name
    batches = [
        samples.outputs(session, {name: rows[start : start + BATCH_ROWS]}, "the graph")
        for start in range(0, len(rows), BATCH_ROWS)
    ]
    return {output: np.concatenate([arrays[output] for arrays in batches]) for output in batches[0]}


def read_rows(path: Path, *needed: str) -> Arrays:
    """Read the arrays of an `.npz` file, all with the same number of rows.

    Raises NotFoundError for a missing file, InputError, naming it, if it has anything else, NaN or infinity,
    or lacks an array that is `needed`.
    """
    arrays = npz.read_rows(path)
    for name in needed:
        if name not in arrays:
            raise InputError(f"{path.name} has no array called {name}", f"it has {', '.join(sorted(arrays))}")
    for name, array in arrays.items():
        check_finite(array, f"{path.name}: {name}")
    return arrays


def as_float32(array: Any, shape: Sequence[int], label: str) -> Any:
    """Convert floats `[n, *shape]`, n > 0, to float32; InputError, naming `label`, for any other array."""
    import numpy as np

    if not np.issubdtype(array.dtype, np.floating) or array.shape[1:] != tuple(shape) or not len(array):
        axes = ", ".join(["n", *map(str, shape)])
        raise InputError(
            f"{label} is {array.dtype} {list(array.shape)}", f"it must be floats [{axes}] with a row or more"
        )
    with np.errstate(over="ignore"):
        converted = array.astype(np.float32, copy=False)
    check_finite(converted, f"{label}, as float32,")
    return converted


def keys_of(rows: Any) -> RowKeys:
    """Hash each row."""
    return tuple(sha256(row.tobytes()).digest() for row in rows)


def shared(rows: RowKeys, others: RowKeys) -> int:
    """Count the rows that are also among others."""
    keys = {*others}
    return sum(key in keys for key in rows)


def _key(name: str) -> str:
    """Replace `head:<id>` by the name of the member; keep every other name."""
    role, mark, class_id = name.partition(":")
    return member_of(class_id) if (role, mark) == ("head", ":") else name
