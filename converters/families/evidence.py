"""The rows that a family is fitted and measured on, and what its graphs give for them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.converters.families.rows import Rows, as_float32, digest, read_rows, shared_rows
from onnxreg.converters.passes import proof
from onnxreg.schema.errors import InputError

BATCH_ROWS = 64


@dataclass(frozen=True)
class HeldOut:
    """Rows that nobody trained on: `input`, `species` and `head:<id>`, and their digest."""

    rows: Rows
    dataset: str
    name: str = "evaluation"

    @classmethod
    def read(cls, path: Path) -> "HeldOut":
        rows = read_rows(path, "input", "species")
        return cls(rows, str(digest(rows)), path.name)

    def images(self, shape: Sequence[int]) -> Any:
        """`input`, float32 `[n, *shape]`; InputError where it is not."""
        return as_float32(self.rows["input"], shape, f"{self.name}: input")

    def check_heads(self, names: Collection[str]) -> None:
        """InputError for an array `head:<id>` that belongs to none of these heads: nothing would be judged by it."""
        if strange := sorted(name for name in self.rows if name.startswith("head:") and name not in names):
            raise InputError(
                f"the held-out array {strange[0][:80]} belongs to no head",
                f"heads are {', '.join(names)[:300]}",
            )


@dataclass(frozen=True)
class Embedded:
    """The rows of the file `name`: `source`, as they stand there, and as embeddings float32 `[n, d]`.

    `stored`: they stand there as embeddings, of whichever backbone. `dataset` is the digest of all arrays.
    """

    name: str
    dataset: str
    source: Any
    embeddings: Any
    stored: bool

    def check_apart(self, used: "Embedded") -> None:
        """InputError where a row stands in both: what a detector was made of says nothing about it."""
        shared = max(shared_rows(self.source, used.source), shared_rows(self.embeddings, used.embeddings))
        if shared:
            raise InputError(
                f"{self.name} shares {shared} of its {len(self.source)} rows with {used.name}, which made the detector",
                "measure on rows that neither its fit nor its threshold have seen",
            )


@dataclass(frozen=True)
class Embedder:
    """A backbone in a session, for the rows in files beside the family's document."""

    session: Any
    directory: Path

    def embed(self, path: str) -> Embedded:
        """The embeddings of a file's rows: stored as `embedding`, or made of `input`.

        InputError where it has neither, or it has not the shape that the backbone gives or takes.
        """
        rows = read_rows(self.directory / path)
        if "embedding" not in rows:
            return self.embed_images(path)
        width = next(item.shape[1] for item in self.session.get_outputs() if item.name == "embedding")
        name = Path(path).name
        found = as_float32(rows["embedding"], (width,), f"{name}: embedding")
        return Embedded(name, str(digest(rows)), found, found, stored=True)

    def embed_images(self, path: str) -> Embedded:
        """The embeddings of a file's `input`, whatever else it has."""
        rows, name = read_rows(self.directory / path), Path(path).name
        if "input" not in rows:
            raise InputError(f"{name} has neither an array called input nor one called embedding")
        images = as_float32(rows["input"], self.session.get_inputs()[0].shape[1:], f"{name}: input")
        found = outputs_of(self.session, images)["embedding"]
        return Embedded(name, str(digest(rows)), images, found, stored=False)


def outputs_of(session: Any, rows: Any) -> dict[str, Any]:
    """All outputs of a graph of one input for these rows of it, run in batches."""
    import numpy as np

    name, what = session.get_inputs()[0].name, "the graph"
    batches = [
        proof.outputs(session, {name: rows[start : start + BATCH_ROWS]}, what)
        for start in range(0, len(rows), BATCH_ROWS)
    ]
    return {output: np.concatenate([each[output] for each in batches]) for output in batches[0]}
