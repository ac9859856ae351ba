"""What the outputs of a graph for an image or a sound mean."""

from types import SimpleNamespace

import numpy as np
import pytest

from onnxreg.converters.evaluation.answers import run_named, run_numbers
from onnxreg.schema.core.errors import ConversionError, InputError

LABELS = ["cat", "dog"]
BOXES = [[[0.5, 0.5, 0.2, 0.4], [0.1, 0.2, 0.2, 0.2], [0.5, 0.5, 1.0, 1.0]]]
WORDS = {"<pad>": 0, "|": 1, "a": 2, "b": 3}


def answer(labels=LABELS, config=None, words=None, **outputs):
    arrays = {name: np.array(value, np.float32) for name, value in outputs.items()}
    return run_numbers(arrays, labels, config or {}, "model.onnx", words or {})


def test_objects_are_those_that_no_further_class_outweighs():
    logits = [[[0.0, 2.0, 0.0], [1.0, 0.0, 9.0], [4.0, 0.0, 0.0]]]
    first, second = answer(logits=logits, pred_boxes=BOXES)["objects"]
    assert (first["label"], second["label"]) == ("cat", "dog")
    assert first["score"] == pytest.approx(np.exp(4) / (np.exp(4) + 2))
    assert second["box"] == pytest.approx([0.4, 0.3, 0.6, 0.7])


def test_each_class_has_a_score_of_its_own_if_none_means_no_object():
    found = answer(logits=[[[0.1, 3.0], [-1.0, -0.1], [0.0, -2.0]]], pred_boxes=BOXES)["objects"]
    assert [each["label"] for each in found] == ["dog", "cat"], "a score of one half counts"
    assert found[0]["score"] == pytest.approx(1 / (1 + np.exp(-3)))


def test_pixels_and_the_share_of_each_label():
    found = answer(logits=[[[[0, 1], [0, 0]], [[1, 0], [1, 1]]]])
    assert found["pixels"] == [[1, 0], [1, 1]]
    assert found["segments"] == [{"label": "dog", "share": 0.75}, {"label": "cat", "share": 0.25}]


def test_a_transcript_has_repeated_tokens_once_and_no_blanks():
    cases = [([2, 2, 0, 2, 1, 3], 0, "aa b"), ([1, 2, 2, 2, 3, 3, 1], 0, "ab"), ([2, 3, 2], 3, "aa")]
    for best, blank, text in (*cases, ([0, 0], 0, ""), ([2, 0, 3], None, "ab")):
        logits = np.eye(4)[best][None]
        assert answer(logits=logits, words=WORDS, config={"pad_token_id": blank}) == {"transcript": text}


def test_another_output_is_a_vector_but_a_depth_is_given_as_it_is():
    assert answer((), predicted_depth=[[[1.0, 2.0]]]) == {"depth": [[1.0, 2.0]]}
    cases = [([[1.0, 2.0]], [1.0, 2.0], "graph"), ([[[1.0, 2.0], [5.0, 6.0]]], [1.0, 2.0], "first")]
    for values, vector, pooling in (*cases, ([[[[1.0, 3.0]], [[5.0, 7.0]]]], [2.0, 6.0], "mean")):
        assert answer((), last_hidden_state=values) == {"vector": vector, "pooling": pooling}


def test_texts_of_a_fixed_size_are_padded_and_the_padding_is_masked():
    inputs, feeds = {"input_ids": np.array([[5, 6]]), "attention_mask": np.array([[1, 1]])}, []
    tokenizer = SimpleNamespace(row=lambda text: SimpleNamespace(inputs=inputs))
    outputs, config = {"logits_per_image": np.ones((1, 1))}, {"pad_token_id": 9}
    sizes = dict.fromkeys(inputs, 4)
    run_named(lambda feed: feeds.append(feed) or outputs, tokenizer, sizes, {}, ["a"], config, "model.onnx")
    given = {name: array.tolist() for name, array in feeds[0].items()}
    assert given == {"input_ids": [[5, 6, 9, 9]], "attention_mask": [[1, 1, 0, 0]]}


MANY_BOXES, PIXELS, FRAMES = np.ones((1, 5, 4)), np.ones((1, 3, 4, 4)), np.ones((1, 7, 3))


@pytest.mark.parametrize(
    ("outputs", "labels", "words", "error"),
    [
        ({"logits": np.ones((1, 5, 3)), "pred_boxes": MANY_BOXES}, 0, {}, ConversionError),
        ({"logits": PIXELS}, 0, {}, ConversionError),
        ({"logits": PIXELS}, 2, {}, ConversionError),
        ({"logits": PIXELS[None]}, 3, {}, InputError),
        ({"logits": FRAMES}, 0, {"eng": {"a": 1}}, InputError),
        ({"logits": FRAMES}, 0, {}, InputError),
        ({"loss": np.ones(1)}, 0, {}, InputError),
        ({"scores": np.ones((1, 3))}, 2, {}, ConversionError),
        ({"names": np.array([["a"]])}, 0, {}, InputError),
        ({"names": np.zeros((0, 4))}, 0, {}, InputError),
    ],
)
def test_outputs_without_their_labels_or_words_are_refused(outputs, labels, words, error):
    with pytest.raises(error, match=r"g\.onnx gives"):
        run_numbers(outputs, [str(number) for number in range(labels)], {}, "g.onnx", words)
