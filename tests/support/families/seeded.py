"""Heads of seeded weights, and rows as if embedded."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from onnxreg.converters.families.head_checkpoints import HeadCheckpoint, Layer
from onnxreg.converters.families.rows import RowEmbeddings, keys_of
from onnxreg.converters.passes.tools.samples import digest

WIDTH = 24


def embedded(rows: np.ndarray, name: str = "rows.npz", *, stored: bool = False) -> RowEmbeddings:
    """Rows as if they had come out of a backbone."""
    dataset = str(digest([{"embedding": rows}]))
    return RowEmbeddings(name, dataset, keys_of(rows), {"embedding": rows}, stored)


MakeHead = Callable[..., HeadCheckpoint]


def maker() -> MakeHead:
    """Makes a head: `make(name, classes, hidden...)`."""
    generator = np.random.default_rng(7)

    def make(name: str, classes: int, *hidden: int, width: int = WIDTH, scale: float = 1.0) -> HeadCheckpoint:
        sizes = [width, *hidden, classes]
        layers = tuple(
            Layer(
                (scale * before**-0.5 * generator.normal(size=(after, before))).astype(np.float32),
                generator.normal(size=after).astype(np.float32),
            )
            for before, after in pairwise(sizes)
        )
        ids = tuple(f"class{number}" for number in range(classes))
        return HeadCheckpoint(name, layers, ids, (9,) * classes)

    return make
