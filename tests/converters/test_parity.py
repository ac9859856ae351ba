"""The comparison of logits, and the sample it is made on."""

from typing import Any

import numpy as np
import pytest

from onnxreg.converters import parity
from onnxreg.schema.digest import Digest
from onnxreg.schema.errors import ConversionError


def feed(mask: list[list[int]]) -> dict[str, Any]:
    return {"attention_mask": np.array(mask, np.int64)}


def test_padding_does_not_count() -> None:
    expected = np.array([[[3.0, 1.0], [0.0, 2.0]], [[1.0, 0.0], [5.0, 5.0]]], np.float32)
    got = expected.copy()
    got[1, 1] = np.nan
    got[0, 1] = [0.5, 0.25]
    found = parity.compare([expected], [got], [feed([[1, 1], [1, 0]])], "x.onnx")
    assert (found.positions, found.max_abs_diff) == (3, 1.75)
    assert found.argmax_agreement == pytest.approx(2 / 3)
    assert found.min_cosine == pytest.approx(0.25 / np.hypot(0.5, 0.25))


def test_logits_of_zero_agree_with_each_other() -> None:
    zeros = np.zeros((1, 1, 2), np.float32)
    assert parity.compare([zeros], [zeros], [feed([[1]])], "x.onnx").min_cosine == 1


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_a_number_is_an_error_on_either_side(value: float) -> None:
    good, bad = np.zeros((1, 1, 2), np.float32), np.full((1, 1, 2), value, np.float32)
    with pytest.raises(ConversionError, match=r"x\.onnx: NaN or infinity"):
        parity.compare([good], [bad], [feed([[1]])], "x.onnx")
    with pytest.raises(ConversionError, match="the checkpoint itself gives NaN"):
        parity.compare([bad], [good], [feed([[1]])], "x.onnx")


def test_another_shape_is_an_error() -> None:
    with pytest.raises(ConversionError, match="another shape"):
        parity.compare([np.zeros((1, 1, 2))], [np.zeros((1, 1, 3))], [feed([[1]])], "x.onnx")


def test_a_limit_gives_a_verdict_and_figures_are_rounded() -> None:
    agreement = parity.Agreement(positions=7, max_abs_diff=0.123456789, min_cosine=1.0, argmax_agreement=0.5)
    dataset = parity.feeds_digest([feed([[1]])])
    for limit, verdict in ((0.1, "fail"), (0.2, "pass")):
        first, *rest = parity.checks(agreement, dataset, limit)
        assert (first["value"], first["limit"], first["verdict"]) == (0.123457, limit, verdict)
        assert all(check["verdict"] == "info" and "limit" not in check for check in rest)


@pytest.mark.parametrize("longest", [1, 5, 40, 512])
def test_sample_covers_padding_and_the_longest_row(bert: Any, longest: int) -> None:
    from onnxreg.converters.source import load_checkpoint

    tokenizer = load_checkpoint(str(bert), "x").tokenizer
    inputs = ("input_ids", "attention_mask", "token_type_ids")
    feeds = parity.sample_feeds(tokenizer, inputs, longest)
    assert [tuple(feed) for feed in feeds] == [inputs] * 3
    assert feeds[2]["input_ids"].shape == (1, longest)
    assert feeds[1]["input_ids"].shape == (3, min(48, longest))
    lengths = feeds[1]["attention_mask"].sum(axis=1).tolist()
    assert lengths == [min(length, longest) for length in (48, 31, 7)]
    assert feeds[1]["input_ids"].max() < len(tokenizer)
    assert parity.feeds_digest(feeds) == parity.feeds_digest(parity.sample_feeds(tokenizer, inputs, longest))


def test_an_artifact_that_answers_otherwise_is_refused() -> None:
    from types import SimpleNamespace

    from onnxreg.converters.android import artifacts

    sample: Any = SimpleNamespace(digest=Digest.of(b"sample"))
    wrong = parity.Agreement(100, 0.5, 0.1, 0.2, scale=10.0)
    for path in (artifacts.graphs.FP32, artifacts.graphs.FP16, artifacts.graphs.INT8, artifacts.graphs.ORT):
        with pytest.raises(ConversionError, match="is not the checkpoint's model"):
            artifacts._checks(path, wrong, sample)
    rounded = parity.Agreement(100, 0.009, 0.99, 1.0, scale=10.0)
    assert [check["verdict"] for check in artifacts._checks("model.onnx", rounded, sample)] == [
        "pass",
        "info",
        "info",
    ]
