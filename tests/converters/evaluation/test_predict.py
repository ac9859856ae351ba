import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
import tokenizers
import torch
import transformers
from onnx import TensorProto, helper
from support.evaluation import subject_of

from onnxreg.converters.evaluation.evaluators import (
    LabelledRow,
    LabelledRows,
    ModelInput,
    Run,
    TokenSpans,
    output,
)
from onnxreg.converters.evaluation.predict import artifact_runner, parent_runner, predict
from onnxreg.converters.evaluation.suite import Fixture
from onnxreg.schema.core.errors import ConversionError

TEXTS = ["Ada meets Bo in Oslo", "Cy", "xyzzy " * 30 + "New York", ""]


def graph(path: Path, inputs: list[str], outputs: list[str], tags: int = 5, axes: str = "bb") -> Path:
    """`axes` are the names of the inputs' first axes."""
    nodes = [
        helper.make_node("Cast", [inputs[0]], ["flat"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["flat", "axes"], ["deep"]),
        helper.make_node("Concat", ["deep"] * tags, outputs, axis=2),
    ]
    made = helper.make_graph(
        nodes,
        "graph",
        [
            helper.make_tensor_value_info(name, TensorProto.INT64, [axis, "s"])
            for name, axis in zip(inputs, axes, strict=False)
        ],
        [
            helper.make_tensor_value_info(outputs[0], TensorProto.FLOAT, ["b", "s", tags]),
        ],
        [onnx.numpy_helper.from_array(np.array([2]), "axes")],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path.write_bytes(model.SerializeToString())
    return path


def evaluator_of(checkpoint: Any, max_length: int = 512) -> TokenSpans:
    return TokenSpans(subject_of(checkpoint, max_length))


def predictions(evaluator: TokenSpans, run: Run, texts: Sequence[str]) -> list[Any]:
    items = [Fixture(text, ()) for text in texts]
    return predict(evaluator, run, items, evaluator.inputs(items))


def test_both_runtimes_and_the_decoder_agree(
    checkpoint: Callable[..., SimpleNamespace], candidate: Callable[..., Path]
) -> None:
    evaluator = evaluator_of(checkpoint(), 18)
    right = predictions(evaluator, artifact_runner(candidate()), TEXTS)
    with parent_runner(evaluator.subject.start) as run:
        left = predictions(evaluator, run, TEXTS)
    assert all(np.array_equal(one, other) for one, other in zip(left, right, strict=True))
    assert "".join(".NC"[number + 1] for number in left[0]) == "NNN.......NN....CCCC"
    assert left[2].tolist() == [-1] * 180 + [1] * 8
    assert left[3].tolist() == []


def test_the_same_on_any_number_of_threads(
    tokenizer: "transformers.PreTrainedTokenizerFast", monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=14,
        hidden_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=384,
        num_labels=5,
    )
    model = transformers.BertForTokenClassification(config).eval()
    texts = ["Ada meets Bo in Oslo " * count for count in range(1, 40)]
    labels = ("O", "A", "B", "C", "D")
    evaluator = evaluator_of(
        SimpleNamespace(model=model, tokenizer=tokenizer, labels=labels, source=None),
        510,
    )

    def logits(cores: int, torch_threads: int) -> list[bytes]:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
        before = torch.get_num_threads()
        torch.set_num_threads(torch_threads)
        seen: dict[int, bytes] = {}
        try:
            with parent_runner(evaluator.subject.start) as run:

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


def test_torch_threads_are_put_back_after_a_failure(checkpoint: Callable[..., SimpleNamespace]) -> None:
    before = torch.get_num_threads()
    start = evaluator_of(checkpoint()).subject.start
    with pytest.raises(KeyError), parent_runner(start):
        raise KeyError
    assert torch.get_num_threads() == before


def test_logits_for_other_labels_are_refused(
    checkpoint: Callable[..., SimpleNamespace], candidate: Callable[..., Path]
) -> None:
    other = dataclasses.replace(checkpoint(), labels=("O", "A", "B", "C", "D", "E", "F"))  # type: ignore[type-var]
    with pytest.raises(ConversionError, match=r"logits of shape \(\d+, 5\), expected \(\d+, 7\)"):
        predictions(evaluator_of(other), artifact_runner(candidate()), TEXTS)


def test_a_file_that_does_not_load_is_named_without_its_path(tmp_path: Path) -> None:
    path = tmp_path / "model_int8.onnx"
    path.write_bytes(b"not a model")
    with pytest.raises(ConversionError, match=r"cannot load model_int8\.onnx") as caught:
        artifact_runner(path)
    assert str(tmp_path) not in caught.value.message


def test_unknown_inputs_are_refused(tmp_path: Path, checkpoint: Callable[..., SimpleNamespace]) -> None:
    path = graph(tmp_path / "model.onnx", ["input_ids", "position_ids"], ["logits"])
    with pytest.raises(ConversionError, match="does not give: position_ids"):
        predictions(evaluator_of(checkpoint()), artifact_runner(path), TEXTS)


def test_an_output_that_is_not_logits_is_refused(
    tmp_path: Path, checkpoint: Callable[..., SimpleNamespace]
) -> None:
    path = graph(tmp_path / "model.onnx", ["input_ids"], ["scores"])
    with pytest.raises(ConversionError, match="no output called logits"):
        predictions(evaluator_of(checkpoint()), artifact_runner(path), TEXTS)


def quantizing(path: Path) -> Path:
    """A graph whose scales are computed over all values of a run."""
    nodes = [
        helper.make_node("Cast", ["input_ids"], ["flat"], to=TensorProto.FLOAT),
        helper.make_node("DynamicQuantizeLinear", ["flat"], ["codes", "scale", "zero"]),
        helper.make_node("DequantizeLinear", ["codes", "scale", "zero"], ["y"]),
    ]
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["b", "s"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", "s"])
    model = helper.make_model(
        helper.make_graph(nodes, "graph", [ids], [y]),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=9,
    )
    path.write_bytes(model.SerializeToString())
    return path


def test_items_share_a_run_only_if_rows_do_not_depend_on_each_other(
    tmp_path: Path, candidate: Callable[..., Path], checkpoint: Callable[..., SimpleNamespace]
) -> None:
    assert artifact_runner(candidate()).rows == 16
    assert artifact_runner(quantizing(tmp_path / "dynamic.onnx")).rows == 1
    evaluator = evaluator_of(checkpoint())
    with parent_runner(evaluator.subject.start) as run:
        together = predictions(evaluator, run, TEXTS * 9)
        alone = predictions(evaluator, run.run, TEXTS * 9)
    assert all(np.array_equal(one, other) for one, other in zip(together, alone, strict=True))


def test_inputs_whose_first_axes_differ_are_not_put_together(tmp_path: Path) -> None:
    names = ["input_ids", "attention_mask"]
    assert artifact_runner(graph(tmp_path / "other.onnx", names, ["logits"], axes="bc")).rows == 1


def test_a_text_without_tokens_has_no_labels(
    checkpoint: Callable[..., SimpleNamespace], candidate: Callable[..., Path]
) -> None:
    parent = checkpoint()
    bare = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer.from_str(parent.tokenizer.backend_tokenizer.to_str()),
        unk_token="[UNK]",
        pad_token="[PAD]",
    )
    bare.backend_tokenizer.post_processor = tokenizers.processors.Sequence([])
    evaluator = evaluator_of(dataclasses.replace(parent, tokenizer=bare))  # type: ignore[type-var]
    assert len(bare(" ")["input_ids"]) == 0
    empty, named = predictions(evaluator, artifact_runner(candidate()), [" ", "Ada"])
    assert (empty.tolist(), named.tolist()) == ([-1], [0, 0, 0])


def test_a_source_that_does_not_run_on_an_item_is_an_error(
    checkpoint: Callable[..., SimpleNamespace],
) -> None:
    class Fussy(torch.nn.Module):
        def forward(self, input_ids: torch.Tensor, **_: torch.Tensor) -> SimpleNamespace:
            raise IndexError("cannot reshape")

    evaluator = evaluator_of(dataclasses.replace(checkpoint(), model=Fussy()))  # type: ignore[type-var]
    with (
        parent_runner(evaluator.subject.start) as run,
        pytest.raises(ConversionError, match="does not run on an item of the suite: cannot reshape"),
    ):
        predictions(evaluator, run, TEXTS)


def test_a_model_that_gives_nan_has_no_prediction(
    checkpoint: Callable[..., SimpleNamespace], tmp_path: Path
) -> None:
    evaluator = evaluator_of(checkpoint())
    (window, *_) = evaluator.inputs([Fixture("Ada meets Bo", ())])
    logits = np.zeros((1, 5, 5), dtype=np.float32)
    logits[0, 0] = np.nan
    evaluator.read(window, {"logits": logits})
    logits[0, 2, 1] = np.nan
    with pytest.raises(ConversionError, match="gives NaN"):
        evaluator.read(window, {"logits": logits})
    with pytest.raises(ConversionError, match="gives NaN"):
        output({"logits": np.array([[0.5, np.nan]])}, "logits")


def test_a_row_that_gives_nan_is_not_the_right_class(tmp_path: Path) -> None:
    evaluator = LabelledRows(None)  # type: ignore[arg-type]
    row = ModelInput(0, {}, ("y", 1))
    assert evaluator.read(row, {"y": np.array([[0.1, 0.5, np.inf]])}) == (1, 3)
    with pytest.raises(ConversionError, match="gives NaN"):
        evaluator.read(row, {"y": np.array([[0.1, np.nan, 0.2]])})


def test_a_graph_of_arrays_that_mixes_its_rows_gets_one_at_a_time(tmp_path: Path) -> None:
    text = "g (float[n,3] x) => (float[n,3] y) { y = Softmax<axis=0>(x) }"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{text}')
    onnx.save(model, tmp_path / "mixing.onnx")
    feeds = [{"x": row[None].astype(np.float32)} for row in np.random.default_rng(0).normal(size=(40, 3))]
    subject = SimpleNamespace(sample=SimpleNamespace(expected=[{"y": None}]))
    evaluator = LabelledRows(subject)  # type: ignore[arg-type]
    items = [LabelledRow(feed, number % 3) for number, feed in enumerate(feeds)]
    run = artifact_runner(tmp_path / "mixing.onnx")
    together = predict(evaluator, run, items, evaluator.inputs(items))
    assert together == predict(evaluator, run.run, items, evaluator.inputs(items))
