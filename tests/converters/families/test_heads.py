"""Heads and the fused graph give what torch gives."""

import numpy as np
import onnx
import pytest
import torch
from support.families.seeded import WIDTH, MakeHead

from onnxreg.converters.families.head_checkpoints import HeadCheckpoint
from onnxreg.converters.families.head_graphs import MASKED, OUTPUT, fused_graph, head_graph
from onnxreg.converters.families.precisions import compare_fused
from onnxreg.converters.passes.tools import model_file
from onnxreg.schema.core.errors import InputError

ROWS = np.random.default_rng(1).normal(size=(16, WIDTH)).astype(np.float32)


def by_torch(head: HeadCheckpoint, rows: np.ndarray) -> np.ndarray:
    parts: list[torch.nn.Module] = []
    for layer in head.layers:
        linear = torch.nn.Linear(*layer.weight.shape[::-1])
        linear.load_state_dict(
            {"weight": torch.from_numpy(layer.weight), "bias": torch.from_numpy(layer.bias)}
        )
        parts += [linear, torch.nn.ReLU()]
    with torch.no_grad():
        return torch.nn.Sequential(*parts[:-1])(torch.from_numpy(rows)).numpy()


@pytest.fixture(params=[(), (6,), (6, 5)], ids=["linear", "one hidden layer", "two hidden layers"])
def heads(request: pytest.FixtureRequest, make_head: MakeHead) -> list[HeadCheckpoint]:
    hidden: tuple[int, ...] = request.param
    return [
        make_head(f"head:{number}", 2 + number, *(size + number for size in hidden)) for number in range(5)
    ]


def test_a_head_is_its_torch_module(heads: list[HeadCheckpoint]) -> None:
    for head in heads:
        graph = head_graph(head, "Relu", 18)
        onnx.checker.check_model(graph, full_check=True)
        for rows in (ROWS, ROWS[:1]):
            (got,) = model_file.session(graph).run(None, {"embedding": rows})
            assert np.abs(got - by_torch(head, rows)).max() < 1e-5


def fused_logits(heads: list[HeadCheckpoint], index: list[int], quantized: bool = False) -> np.ndarray:
    graph = fused_graph(heads, "Relu", 18, quantized=quantized)
    onnx.checker.check_model(graph, full_check=True)
    session = model_file.session(graph)
    (got,) = session.run(None, {"embedding": ROWS[: len(index)], "head": np.array(index)})
    return np.asarray(got)


def test_the_fused_graph_is_the_separate_heads(heads: list[HeadCheckpoint]) -> None:
    index = [4, 0, 3, 3, 1, 2]
    got = fused_logits(heads, index)
    for row, number in enumerate(index):
        classes = len(heads[number].classes)
        assert np.abs(got[row, :classes] - by_torch(heads[number], ROWS)[row]).max() < 1e-5
        assert (got[row, classes:] == np.float32(MASKED)).all()


@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize("index", [-1, -5, 5, 2**40, -(2**63)])
def test_an_index_out_of_range_is_an_error_of_the_run(
    heads: list[HeadCheckpoint], index: int, quantized: bool
) -> None:
    with pytest.raises(Exception, match="out of data bounds"):
        fused_logits(heads, [0, index], quantized)


def test_a_loud_head_costs_the_others_nothing(make_head: MakeHead) -> None:
    """Scales are of each head and column: with twenty times its weights one head leaves the others as exact as before."""
    quiet = [make_head(f"head:{number}", 3) for number in range(3)]
    loud = [*quiet[:2], make_head("head:loud", 3, scale=20.0)]
    index = [0, 1, 0, 1]
    before, after = (fused_logits(each, index, quantized=True) for each in (quiet, loud))
    assert np.array_equal(before, after)
    exact = np.stack([by_torch(quiet[number], ROWS)[row] for row, number in enumerate(index)])
    assert np.abs(before - exact).max() < 0.02 * np.abs(exact).max()


def test_heads_that_cannot_be_stacked_are_named(make_head: MakeHead) -> None:
    first = make_head("head:a", 2)
    with pytest.raises(InputError, match="head:b reads embeddings of width 9"):
        fused_graph([first, make_head("head:b", 2, width=9)], "Relu", 18)
    with pytest.raises(InputError, match="head:b has 2 layers and head:a 1"):
        fused_graph([first, make_head("head:b", 2, 4)], "Relu", 18)


def test_each_head_of_the_fused_graph_is_held_to_its_own_logits() -> None:
    """A head of large logits does not widen what another may lose, and negative logits have an argmax of their own."""
    large, small = np.array([[-900.0, -1000.0]]), np.array([[-1.0, -2.0, -3.0]])
    expected, got = ([{OUTPUT: large}, {OUTPUT: each}] for each in (small, small[:, ::-1]))
    relative, argmax = compare_fused(expected, got, {"embedding": ROWS}, 0.1)
    assert (relative["value"], relative["verdict"]) == (pytest.approx(2 / 3, rel=1e-5), "fail")
    assert argmax["value"] == 0.5
