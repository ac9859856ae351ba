"""The rows that a family is fitted and measured on, and what its graphs give for them."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.converters.families.rows import Rows, digest, read_rows
from onnxreg.converters.passes import proof
from onnxreg.schema.errors import InputError

BATCH_ROWS = 64


@dataclass(frozen=True)
class HeldOut:
    """Rows that nobody trained on: `input`, `species` and `head:<id>`, and their digest."""

    rows: Rows
    dataset: str

    @classmethod
    def read(cls, path: Path) -> "HeldOut":
        rows = read_rows(path, "input", "species")
        return cls(rows, str(digest(rows)))

    @property
    def images(self) -> Any:
        return self.rows["input"]

    def check_heads(self, names: Collection[str]) -> None:
        """InputError for an array `head:<id>` that belongs to none of these heads: nothing would be judged by it."""
        if strange := sorted(name for name in self.rows if name.startswith("head:") and name not in names):
            raise InputError(
                f"the held-out array {strange[0][:80]} belongs to no head",
                f"heads are {', '.join(names)[:300]}",
            )


@dataclass(frozen=True)
class Embedder:
    """The float32 backbone in a session, for the rows in files beside the family's document."""

    session: Any
    directory: Path

    def embed(self, path: str) -> tuple[str, Any]:
        """The digest of a file's rows, and their embeddings float32 `[n, d]`: stored as `embedding`, or made of `input`.

        InputError where it has neither.
        """
        import numpy as np

        rows = read_rows(self.directory / path)
        if "embedding" in rows:
            return str(digest(rows)), rows["embedding"].astype(np.float32)
        if "input" not in rows:
            raise InputError(f"{Path(path).name} has neither an array called input nor one called embedding")
        return str(digest(rows)), outputs_of(self.session, rows["input"])["embedding"]


def outputs_of(session: Any, rows: Any) -> dict[str, Any]:
    """All outputs of a graph of one input for these rows of it, run in batches."""
    import numpy as np

    name, what = session.get_inputs()[0].name, "the graph"
    batches = [
        proof.outputs(session, {name: rows[start : start + BATCH_ROWS]}, what)
        for start in range(0, len(rows), BATCH_ROWS)
    ]
    return {output: np.concatenate([each[output] for each in batches]) for output in batches[0]}
