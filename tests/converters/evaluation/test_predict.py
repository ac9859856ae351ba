import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
import tokenizers
import torch
import transformers
from support.evaluation import subject_of
from support.graphs import graph

from onnxreg.converters.evaluation.decoding import output, text_vector
from onnxreg.converters.evaluation.evaluators import TokenSpans
from onnxreg.converters.evaluation.predict import Run, artifact_runner, parent_runner, predict
from onnxreg.converters.evaluation.rows import LabelledRow, LabelledRows
from onnxreg.converters.evaluation.suite import Fixture
from onnxreg.schema.core.errors import ConversionError

TEXTS = ["Ada meets Bo in Oslo", "Cy", "xyzzy " * 30 + "New York", ""]


NO_MODEL: Any = None


def saved(path: Path, inputs: dict[str, str], output: str = "logits") -> Path:
    """A graph of five tags that reads its first input; the inputs' first axes have these names."""
    sides = ", ".join(f"int64[{axis}, s] {name}" for name, axis in inputs.items())
    first, five = next(iter(inputs)), ", ".join(["deep"] * 5)
    body = (
        f"flat = Cast <to = 1> ({first}) deep = Unsqueeze(flat, axes) {output} = Concat <axis = 2> ({five})"
    )
    onnx.save(graph(body, sides, f"float[b, s, 5] {output}", axes=np.array([2])), path)
    return path


def evaluator_of(checkpoint: Any, max_length: int = 512) -> TokenSpans:
    return TokenSpans(subject_of(checkpoint, max_length))


def predictions(evaluator: TokenSpans, run: Run, texts: Sequence[str]) -> list[Any]:
    items = [Fixture(text, ()) for text in texts]
    return predict(run, [*map(evaluator.reading, items)], evaluator.shares_runs)


def test_both_runtimes_and_the_decoder_agree(checkpoint, candidate):
    evaluator = evaluator_of(checkpoint(), 18)
    right = predictions(evaluator, artifact_runner(candidate()), TEXTS)
    with parent_runner(evaluator.subject.part.start) as run:
        left = predictions(evaluator, run, TEXTS)
    assert all(np.array_equal(one, other) for one, other in zip(left, right, strict=True))
    assert "".join(".NC"[number + 1] for number in left[0]) == "NNN.......NN....CCCC"
    assert left[2].tolist() == [-1] * 180 + [1] * 8
    assert left[3].tolist() == []


def test_the_same_on_any_number_of_threads(tokenizer, monkeypatch):
    torch.manual_seed(0)
    sizes = {"hidden_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 384}
    config = transformers.BertConfig(vocab_size=14, num_labels=5, **sizes)
    model = transformers.BertForTokenClassification(config).eval()
    texts = ["Ada meets Bo in Oslo " * count for count in range(1, 40)]
    made = {"model": model, "tokenizer": tokenizer, "labels": ("O", "A", "B", "C", "D"), "source": None}
    evaluator = evaluator_of(SimpleNamespace(**made), 510)

    def logits(cores: int, torch_threads: int) -> list[bytes]:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
        before = torch.get_num_threads()
        torch.set_num_threads(torch_threads)
        seen: dict[int, bytes] = {}
        try:
            with parent_runner(evaluator.subject.part.start) as run:

                def watched(inputs):  # type: ignore[no-untyped-def]
                    assert torch.get_num_threads() == 1
                    found = run(inputs)
                    seen[inputs["input_ids"].shape[1]] = found["logits"].tobytes()
                    return found

                predictions(evaluator, watched, texts)
            assert torch.get_num_threads() == torch_threads
        finally:
            torch.set_num_threads(before)
        return [seen[length] for length in sorted(seen)]

    assert logits(1, 1) == logits(2, 4) == logits(5, 2)


def test_graphs_that_are_not_of_the_model_are_refused(tmp_path, checkpoint, candidate):
    parent = checkpoint()
    other = dataclasses.replace(parent, labels=("O", "A", "B", "C", "D", "E", "F"))
    positions = saved(tmp_path / "positions.onnx", {"input_ids": "b", "position_ids": "b"})
    scores = saved(tmp_path / "scores.onnx", {"input_ids": "b"}, "scores")
    for source, path, message in (
        (other, candidate(), r"logits of shape \(\d+, 5\), expected \(\d+, 7\)"),
        (parent, positions, "does not give: position_ids"),
        (parent, scores, "no output called logits"),
    ):
        with pytest.raises(ConversionError, match=message):
            predictions(evaluator_of(source), artifact_runner(path), TEXTS)
    (tmp_path / "broken.onnx").write_bytes(b"not a model")
    with pytest.raises(ConversionError, match=r"cannot load broken\.onnx") as caught:
        artifact_runner(tmp_path / "broken.onnx")
    assert str(tmp_path) not in caught.value.message


def test_items_share_a_run_of_the_source_and_not_of_a_file(candidate, checkpoint):
    assert artifact_runner(candidate()).rows == 1
    evaluator = evaluator_of(checkpoint())
    with parent_runner(evaluator.subject.part.start) as run:
        assert run.rows == 16
        together = predictions(evaluator, run, TEXTS * 9)
        alone = predictions(evaluator, run.run, TEXTS * 9)
    assert all(np.array_equal(one, other) for one, other in zip(together, alone, strict=True))


def test_a_text_without_tokens_has_no_labels(checkpoint, candidate):
    parent = checkpoint()
    backend = tokenizers.Tokenizer.from_str(parent.tokenizer.backend_tokenizer.to_str())
    words = {"unk_token": "[UNK]", "pad_token": "[PAD]"}
    bare = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **words)
    bare.backend_tokenizer.post_processor = tokenizers.processors.Sequence([])
    evaluator = evaluator_of(dataclasses.replace(parent, tokenizer=bare))
    assert len(bare(" ")["input_ids"]) == 0
    empty, named = predictions(evaluator, artifact_runner(candidate()), [" ", "Ada"])
    assert (empty.tolist(), named.tolist()) == ([-1], [0, 0, 0])


def test_a_source_that_does_not_run_on_an_item_is_an_error_and_threads_are_put_back(checkpoint):
    class Fussy(torch.nn.Module):
        def forward(self, input_ids: torch.Tensor, **_: torch.Tensor) -> SimpleNamespace:
            raise IndexError("cannot reshape")

    before = torch.get_num_threads()
    evaluator = evaluator_of(dataclasses.replace(checkpoint(), model=Fussy()))
    message = "does not run on an item of the suite: cannot reshape"
    with pytest.raises(ConversionError, match=message), parent_runner(evaluator.subject.part.start) as run:
        predictions(evaluator, run, TEXTS)
    assert torch.get_num_threads() == before


def test_a_model_that_gives_nan_has_no_prediction(checkpoint):
    evaluator = evaluator_of(checkpoint())
    reading = evaluator.reading(Fixture("Ada meets Bo", ()))
    logits = np.zeros((1, 5, 5), dtype=np.float32)
    logits[0, 0] = np.nan
    reading.predict({"logits": logits})
    logits[0, 2, 1] = np.nan
    arrays = LabelledRows(NO_MODEL)
    assert arrays.compare("y", 1, {"y": np.array([[0.1, 0.5, np.inf]])}) == (1, 3)
    for read in (
        lambda: reading.predict({"logits": logits}),
        lambda: output({"logits": np.array([[0.5, np.nan]])}, "logits"),
        lambda: arrays.compare("y", 1, {"y": np.array([[0.1, np.nan, 0.2]])}),
    ):
        with pytest.raises(ConversionError, match="gives NaN"):
            read()


@pytest.mark.parametrize("rows", [[0.5], [[[0.1, 0.9]]]], ids=["number", "matrix"])
def test_the_class_of_a_row_needs_one_vector(rows):
    with pytest.raises(ConversionError):
        LabelledRows(NO_MODEL).compare("y", 0, {"y": np.array(rows)})


def test_a_vector_is_the_output_or_the_mean_of_the_states_that_count():
    feed = {"attention_mask": np.array([[1, 1, 0]])}
    states = np.array([[[1.0, 2.0], [3.0, 5.0], [99.0, 99.0]]], np.float32)
    outputs = {"last_hidden_state": states}
    assert text_vector(outputs, feed)[0].tolist() == [2.0, 3.5]
    with pytest.raises(ConversionError, match="gives 2 vectors for 3 tokens"):
        text_vector({"last_hidden_state": states[:, :2]}, feed)
    outputs["embeddings"] = np.array([[7.0, 8.0]], np.float32)
    assert text_vector(outputs, feed)[0].tolist() == [7.0, 8.0]


def test_a_graph_of_arrays_that_mixes_its_rows_gets_one_at_a_time(tmp_path):
    onnx.save(graph("y = Softmax<axis=0>(x)", "float[n, 3] x", "float[n, 3] y"), tmp_path / "mixing.onnx")
    feeds = [{"x": row[None].astype(np.float32)} for row in np.random.default_rng(0).normal(size=(40, 3))]
    subject: Any = SimpleNamespace(part=SimpleNamespace(expected=[{"y": None}]))
    evaluator = LabelledRows(subject)
    items = [LabelledRow(feed, number % 3) for number, feed in enumerate(feeds)]
    run = artifact_runner(tmp_path / "mixing.onnx")
    readings = [*map(evaluator.reading, items)]
    assert predict(run, readings, evaluator.shares_runs) == predict(run.run, readings, False)
