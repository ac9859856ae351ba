"""How far outputs are from what they were made from, and the sample this is measured on."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from support.graphs import graph
from support.tasks.checkpoints import load_checkpoint

from onnxreg.converters.engine import measure
from onnxreg.converters.passes import samples
from onnxreg.converters.runtime.sessions import load_session
from onnxreg.converters.tasks import text
from onnxreg.converters.tasks.task import TOKENS, Part
from onnxreg.schema.core.errors import ConversionError
from onnxreg.schema.inputs.recipe_file import RecipeCheck


def agreement(expected: Any, got: Any, mask: list[list[int]]) -> samples.Distance:
    sample = Part(None, [{"attention_mask": np.array(mask)}], [{"logits": expected}], frozenset({"logits"}))
    sides = [measure.drop_padding([{"logits": side}], sample) for side in (expected, got)]
    return samples.compare(*sides, "it", is_bounded=False)["logits"]


def test_padding_does_not_count_and_outputs_without_a_token_axis_count_whole():
    expected = np.array([[[3.0, 1.0], [0.0, 2.0]], [[1.0, 0.0], [5.0, 5.0]]], np.float32)
    got = expected.copy()
    got[1, 1], got[0, 1] = np.nan, [0.5, 0.25]
    found = agreement(expected, got, [[1, 1], [1, 0]])
    assert (found.positions, found.max_abs_diff) == (3, 1.75)
    assert (found.argmax_agreement, found.min_cosine) == pytest.approx((2 / 3, 0.25 / np.hypot(0.5, 0.25)))
    sample = Part(None, [{"attention_mask": np.array([[1, 0], [1, 1]])}], [{"embeddings": np.ones((2, 2))}])
    assert measure.drop_padding(sample.expected, sample)[0]["embeddings"].shape == (2, 2)


def test_numbers_of_tokens_are_compared_together_and_zeros_agree():
    """A question's start logits: which token is the largest is what counts, and padding is no token."""
    expected = np.array([[1.0, 5.0, 9.0]], np.float32)
    for got, same in (([[2.0, 4.0, 0.0]], 1.0), ([[5.0, 4.0, 9.0]], 0.0)):
        found = agreement(expected, np.array(got, np.float32), [[1, 1, 0]])
        assert (found.positions, found.argmax_agreement, found.min_cosine < 1) == (1, same, True)
    assert agreement(*[np.zeros((1, 1, 2), np.float32)] * 2, [[1]]).min_cosine == 1


@pytest.mark.parametrize("shape", [(0,), (0, 4), (2, 0)])
def test_runs_without_an_element_do_not_count(shape):
    runs = [{"scores": np.ones(size, np.float32)} for size in (shape, (2, 4))]
    found = [samples.compare(some, some, "it")["scores"] for some in (runs[:1], runs)]
    assert [(one.positions, one.min_cosine, one.argmax_agreement) for one in found] == [(0, 1, 1), (2, 1, 1)]


def test_outputs_keep_no_memory_of_the_session(home):
    feed = {"x": np.ones((1, 64), np.float32)}
    session = load_session(home / "mlp.onnx")
    (outputs,) = samples.all_outputs(session, [feed], "the graph")
    assert outputs["y"].flags.owndata
    assert np.array_equal(outputs["y"], session.run(None, feed)[0])


def test_a_graph_with_the_length_of_its_example_in_it_is_refused_with_the_sizes(tmp_path):
    sides = "float[batch, sequence] x", "float[batch, sequence] y"
    model = graph("flat = Reshape(x, shape) y = Add(x, flat)", *sides, opset=17, shape=np.array([-1, 4]))
    onnx.save(model, tmp_path / "model.onnx")
    feeds = [{"x": np.ones(shape, np.float32)} for shape in ((1, 4), (1, 6), (3, 4))]
    with pytest.raises(ConversionError, match=r"\[1, 4\] or \[3, 4\], and not of \[1, 6\]") as caught:
        samples.all_outputs(tmp_path / "model.onnx", feeds, "model.onnx")
    assert "use_dynamo_exporter" in str(caught.value.hint)
    with pytest.raises(ConversionError, match="does not run in ONNX Runtime"):
        samples.all_outputs(tmp_path / "model.onnx", feeds[1:2], "model.onnx")


@pytest.mark.parametrize("value", [0.5, -1.0, np.nan, 256])
def test_no_input_is_rounded_to_fit_the_graph(value, tmp_path):
    onnx.save(graph("y = Identity(x)", "uint8[n] x", "uint8[n] y"), tmp_path / "m.onnx")
    with pytest.raises(ConversionError, match="takes uint8, which cannot hold these values"):
        samples.outputs(load_session(tmp_path / "m.onnx"), {"x": np.array([value])}, "m")


@pytest.mark.parametrize(
    ("value", "asked", "verdict"),
    [
        (0.5, {}, "info"),
        (0.123456789, {"metric": "max_abs_diff", "max": 0.2}, "pass"),
        (0.3, {"metric": "max_abs_diff", "max": 0.2}, None),
        (0.3, {"metric": "max_abs_diff", "share": 0.02}, None),
        (float("nan"), {"metric": "max_abs_diff", "max": 0.2}, None),
        (0.4, {"metric": "min_cosine", "min": 0.5}, None),
        (float("nan"), {"metric": "min_cosine", "min": 0.5}, None),
        (0.2, {"metric": "argmax_agreement", "min": 0.5}, None),
    ],
)
def test_a_limit_gives_a_verdict_and_figures_are_rounded(value, asked, verdict):
    limit, metric = RecipeCheck(**asked) if asked else None, asked.get("metric", "max_abs_diff")

    def judge() -> dict[str, Any]:
        return dict(measure.judge({"name": "parity"}, metric, value, limit, "model.onnx", scale=10.0))

    if verdict is None:
        with pytest.raises(ConversionError, match=r"model\.onnx does not meet its recipe"):
            judge()
        return
    found = [judge().get(key) for key in ("value", "verdict", "limit")]
    assert found == [round(value, 6), verdict, asked.get("max")]


@pytest.mark.parametrize(
    ("expected", "got", "is_right"),
    [
        ([30000, 5, 7], [30000, 5, 7], True),
        ([30000, 5, 7], [30001, 5, 7], False),
        ([True, True, False], [True, True, True], False),
    ],
)
def test_a_limit_holds_for_integers_and_truth_values(expected, got, is_right):
    scores, limits = (
        np.ones((1, 2), np.float32),
        {"max_abs_diff": RecipeCheck(metric="max_abs_diff", share=0.001)},
    )
    sides = [[{"scores": scores, "ids": np.array(one)}] for one in (expected, got)]
    runs = SimpleNamespace(feeds=[{}], outputs=sides[1])
    result: Any = SimpleNamespace(runs=runs, expected=sides[0], distances=None, dataset="sha256:0")
    assert len(measure.checks(result, {}, "model.onnx", 1)) == 3
    if is_right:
        assert len(measure.checks(result, limits, "model.onnx", 1)) == 3
        return
    with pytest.raises(ConversionError):
        measure.checks(result, limits, "model.onnx", 1)
    with pytest.raises(ConversionError):
        samples.compare(*sides, "it", 1e-3)


MASK = float(np.finfo(np.float32).min)


@pytest.mark.parametrize("mask", [MASK, -np.inf])
@pytest.mark.parametrize(
    ("got", "is_right"),
    [
        ([1.0, 2.0, -np.inf], True),
        ([1.0, 2.0, -65504.0], True),
        ([1.0, 2.0, np.inf], False),
        ([1.0, 2.0, 0.0], False),
        ([1.0, 2.5, MASK], False),
    ],
)
def test_a_mask_hides_no_other_value(mask, got, is_right):
    sides = [[{"scores": np.array([one], np.float32)}] for one in ([1.0, 2.0, mask], got)]
    if is_right:
        assert samples.compare(*sides, "it", 1e-3)["scores"].largest == 2
        return
    with pytest.raises(ConversionError):
        samples.compare(*sides, "it", 1e-3)


@pytest.mark.parametrize("longest", [1, 5, 40, 512])
def test_sample_covers_padding_and_the_longest_row(bert, longest):
    tokenizer = load_checkpoint(str(bert), TOKENS).tokenizer
    inputs = ("input_ids", "attention_mask", "token_type_ids")
    feeds = text.sample_feeds(tokenizer, None, inputs, longest)
    assert [tuple(feed) for feed in feeds] == [inputs] * 3
    assert [feed["input_ids"].shape for feed in feeds[1:]] == [(3, min(48, longest)), (1, longest)]
    assert feeds[1]["attention_mask"].sum(axis=1).tolist() == [min(length, longest) for length in (48, 31, 7)]
    assert feeds[1]["input_ids"].max() < len(tokenizer)
    assert samples.digest(feeds) == samples.digest(text.sample_feeds(tokenizer, None, inputs, longest))
