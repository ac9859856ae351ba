"""Rows that a detector is measured on: of the shape that the backbone takes or gives, and not those that made it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxreg.converters.families.head_graphs import make_graph
from onnxreg.converters.families.rows import Embedder, HeldOut
from onnxreg.converters.passes.tools import model_file
from onnxreg.schema.core.errors import InputError

WIDTH = 12


@pytest.fixture(scope="module")
def session() -> Any:
    """Flattens images `[n, 3, 2, 2]` into embeddings."""
    import onnx

    node = onnx.helper.make_node("Flatten", ["input"], ["embedding"])
    inputs = {"input": ("FLOAT", ["n", 3, 2, 2])}
    return model_file.session(
        make_graph("flat", [node], [], inputs, {"embedding": ("FLOAT", ["n", WIDTH])}, 18)
    )


def images(count: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=(count, 3, 2, 2)).astype(np.float32)


@pytest.fixture
def embedder(session: Any, tmp_path: Path) -> Embedder:
    return Embedder(session, tmp_path)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "one column": ({"embedding": np.ones((5, 1), np.float32)}, "rows.npz: embedding is float32"),
    "one axis": ({"embedding": np.ones(5, np.float32)}, "rows.npz: embedding is float32"),
    "another width": ({"embedding": np.ones((5, 9), np.float32)}, "rows.npz: embedding is float32"),
    "no embeddings": ({"embedding": np.ones((0, WIDTH), np.float32)}, "rows.npz: embedding is float32"),
    "words": ({"embedding": np.array([["a"] * WIDTH] * 5)}, "rows.npz: embedding is <U1"),
    "beyond float32": (
        {"embedding": np.full((5, WIDTH), 1e300)},
        "rows.npz: embedding, as float32, holds NaN",
    ),
    "another size": ({"input": np.zeros((5, 3, 4, 4), np.float32)}, "rows.npz: input is float32"),
    "no images": ({"input": images(0)}, "rows.npz: input is float32"),
    "images of words": ({"input": np.array(["a"] * 5)}, "rows.npz: input is <U1"),
    "neither": ({"pixels": images(3)}, "rows.npz has neither an array called input"),
}


@pytest.mark.parametrize("what", BAD)
def test_rows_of_another_shape_are_refused_by_their_file(
    embedder: Embedder, tmp_path: Path, what: str
) -> None:
    arrays, message = BAD[what]
    np.savez(tmp_path / "rows.npz", **arrays)
    with pytest.raises(InputError) as caught:
        embedder.embed("rows.npz")
    assert caught.value.message.startswith(message)


def test_held_out_images_of_another_size_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "held-out.npz", input=images(4), species=np.array(["a"] * 4))
    held_out = HeldOut.read(tmp_path / "held-out.npz")
    assert held_out.images((3, 2, 2)).shape == (4, 3, 2, 2)
    with pytest.raises(InputError, match=r"held-out\.npz: input is float32"):
        held_out.images((3, 4, 4))


def test_stored_embeddings_stand_in_for_images_only_where_asked(embedder: Embedder, tmp_path: Path) -> None:
    stored = np.zeros((4, WIDTH), np.float32)
    np.savez(tmp_path / "rows.npz", input=images(4), embedding=stored)
    assert np.array_equal(embedder.embed("rows.npz").embeddings, stored)
    made = embedder.embed_images("rows.npz")
    assert np.array_equal(made.embeddings, images(4).reshape(4, -1))
    assert (embedder.embed("rows.npz").stored, made.stored) == (True, False)


@pytest.mark.parametrize("kind", ["input", "embedding"])
def test_rows_that_made_the_detector_measure_nothing(embedder: Embedder, tmp_path: Path, kind: str) -> None:
    used = images(5)
    half = np.concatenate([images(3, seed=1), used[:2]])
    np.savez(tmp_path / "fit.npz", input=used)
    np.savez(tmp_path / "other.npz", input=images(5, seed=1))
    np.savez(tmp_path / "half.npz", **{kind: half if kind == "input" else half.reshape(5, -1)})
    fit = embedder.embed("fit.npz")
    embedder.embed("other.npz").check_apart(fit)
    with pytest.raises(InputError, match=r"half\.npz shares 2 of its 5 rows with fit\.npz"):
        embedder.embed("half.npz").check_apart(fit)
    np.savez(tmp_path / "again.npz", input=used)
    with pytest.raises(InputError, match=r"again\.npz and fit\.npz are one set, sha256:"):
        embedder.embed("again.npz").check_apart(fit)


def test_a_file_goes_through_a_backbone_once(session: Any, tmp_path: Path) -> None:
    class Counting:
        """Counts the rows that it runs."""

        rows = 0

        def run(self, names: list[str], feed: dict[str, Any], options: Any = None) -> Any:
            self.rows += len(feed["input"])
            return session.run(names, feed, options)

        def __getattr__(self, name: str) -> Any:
            return getattr(session, name)

    counting = Counting()
    embedder = Embedder(counting, tmp_path)
    np.savez(tmp_path / "rows.npz", input=images(70))
    assert embedder.embed_images("rows.npz") is embedder.embed("rows.npz")
    assert counting.rows == 70
