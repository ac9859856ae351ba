"""`pooling`: the checkpoint's own configuration, inside the graph."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.sampling import sampled

from onnxreg.converters import export
from onnxreg.converters.tasks import task_catalog
from onnxreg.converters.tasks.sentences import SentenceConfig, read_pooling
from onnxreg.schema.core.errors import InputError

Make = Callable[..., Path]
TYPES = "sentence_transformers.models."
CONFIG = {"word_embedding_dimension": 32}


def say(directory: Path, pooling: Any = None, modules: Any = None, length: Any = None) -> Path:
    """Write what sentence-transformers writes; `modules` are the names of classes."""
    if pooling is not None:
        (directory / "1_Pooling").mkdir(exist_ok=True)
        (directory / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    if modules is not None:
        paths = [("" if index == 0 else f"{index}_{kind}") for index, kind in enumerate(modules)]
        entries = [{"idx": at, "type": TYPES + kind, "path": paths[at]} for at, kind in enumerate(modules)]
        (directory / "modules.json").write_text(json.dumps(entries))
    if length is not None:
        (directory / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": length}))
    return directory


@pytest.fixture(scope="module")
def encoder(make_checkpoint: Make) -> Path:
    return make_checkpoint("bert", task="")


@pytest.fixture
def checkpoint(encoder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(encoder, tmp_path / "checkpoint"))


def pooled(directory: Path, feed: dict[str, Any]) -> tuple[Any, Any]:
    """What the graph of a checkpoint gives, and what the encoder itself gives for each position."""
    import onnxruntime
    import torch
    from transformers import AutoModel

    session = onnxruntime.InferenceSession(export(directory, "pooling"), providers=["CPUExecutionProvider"])
    (output,) = session.get_outputs()
    assert (output.name, output.shape) == ("embeddings", ["batch", 32])
    model = AutoModel.from_pretrained(directory, attn_implementation="eager").eval()
    with torch.no_grad():
        states = model(**{name: torch.from_numpy(array) for name, array in feed.items()})
    return session.run(None, feed)[0], states.last_hidden_state.numpy()


def find(checkpoint: Path, **options: Any) -> Any:
    return task_catalog.find("pooling")(**options).find(str(checkpoint))


def load(checkpoint: Path, directory: Path, **options: Any) -> Any:
    directory.mkdir()
    task = task_catalog.find("pooling")(**options)
    return task.load(task.find(str(checkpoint)), "x", directory)


def feed_of(mask: list[list[int]]) -> dict[str, Any]:
    attention = np.array(mask, np.int64)
    ids = np.random.default_rng(0).integers(5, 60, attention.shape) * attention
    return {"input_ids": ids, "attention_mask": attention, "token_type_ids": np.zeros_like(ids)}


POOLED: dict[str, Callable[[Any], Any]] = {
    "mean": lambda rows: rows.mean(axis=0),
    "cls": lambda rows: rows[0],
    "max": lambda rows: rows.max(axis=0),
    "last": lambda rows: rows[-1],
}
KEYS = {"mean": "mean_tokens", "cls": "cls_token", "max": "max_tokens", "last": "lasttoken"}


@pytest.mark.parametrize("mode", sampled(POOLED, 4))
def test_each_mode_is_over_the_positions_that_count(mode, checkpoint):
    modes = {f"pooling_mode_{key}": name == mode for name, key in KEYS.items()}
    say(checkpoint, {**CONFIG, **modes}, ["Transformer", "Pooling"])
    for mask in ([[1, 1, 1, 1, 1]], [[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1], [1, 0, 0, 0, 0, 0]]):
        got, states = pooled(checkpoint, feed_of(mask))
        expected = [POOLED[mode](row[np.array(keep) == 1]) for row, keep in zip(states, mask, strict=True)]
        np.testing.assert_allclose(got, np.stack(expected), atol=1e-5)


def test_the_last_token_is_found_where_the_padding_is_at_the_left_and_norms_are_1(checkpoint):
    say(checkpoint, {**CONFIG, "pooling_mode_lasttoken": True})
    got, states = pooled(checkpoint, feed_of([[0, 0, 1, 1], [1, 1, 1, 1]]))
    np.testing.assert_allclose(got, states[:, -1], atol=1e-5)
    say(checkpoint, {**CONFIG, "pooling_mode_mean_tokens": True}, ["Transformer", "Pooling", "Normalize"])
    got, _ = pooled(checkpoint, feed_of([[1, 1, 0], [1, 1, 1]]))
    np.testing.assert_allclose(np.linalg.norm(got, axis=1), 1, atol=1e-5)


def test_dense_layers_follow_the_pooling(checkpoint):
    from safetensors.numpy import save_file

    say(
        checkpoint,
        {**CONFIG, "pooling_mode_mean_tokens": True},
        ["Transformer", "Pooling", "Dense", "Normalize"],
    )
    folder = checkpoint / "2_Dense"
    folder.mkdir()
    draw = np.random.default_rng(0)
    weight, bias = (draw.normal(size=shape).astype(np.float32) for shape in ((32, 32), (32,)))
    save_file({"linear.weight": weight, "linear.bias": bias}, folder / "model.safetensors")
    settings = {"in_features": 32, "out_features": 32, "bias": True}
    (folder / "config.json").write_text(
        json.dumps(settings | {"activation_function": "torch.nn.modules.activation.Tanh"})
    )
    got, states = pooled(checkpoint, feed_of([[1, 1, 0], [1, 1, 1]]))
    means = np.stack([states[0, :2].mean(0), states[1].mean(0)])
    expected = np.tanh(means @ weight.T + bias)
    cosines = (got * expected).sum(1) / np.linalg.norm(expected, axis=1)
    np.testing.assert_allclose(cosines, 1, atol=1e-6)
    for change, message in (
        ({"activation_function": "torch.nn.modules.activation.PReLU"}, "activation 'PReLU'"),
        ({"activation_function": "os.system"}, "activation 'system'"),
        ({"use_residual": True}, "use_residual"),
    ):
        (folder / "config.json").write_text(json.dumps(settings | change))
        with pytest.raises(InputError, match=message):
            find(checkpoint)


@pytest.mark.parametrize(
    ("pooling", "modules", "length", "expected"),
    [
        (None, None, None, SentenceConfig()),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, None, None, SentenceConfig("cls")),
        ({"pooling_mode": "lasttoken"}, ["Transformer", "Pooling"], 256, SentenceConfig("last", False, 256)),
        ({"pooling_mode": ["mean"]}, ["Transformer", "Pooling", "Normalize"], None, SentenceConfig("mean", True)),
        ({}, ["Transformer", "Pooling"], "long", SentenceConfig()),
    ],
)  # fmt: skip
def test_the_documents_of_a_sentence_encoder_are_read(pooling, modules, length, expected, tmp_path):
    assert read_pooling(say(tmp_path, pooling, modules, length)) == expected


BERT, OTHER = "sentence_bert_config.json", "config_sentence_transformers.json"
MEAN = {**CONFIG, "pooling_mode": "mean"}
TEXT_METHOD = {"method": "get_text_features", "method_output_name": "x"}
REFUSED: list[tuple[Any, Any, dict[str, Any], str]] = [
    ({"pooling_mode_weightedmean_tokens": True}, None, {}, "pools by 'weightedmean_tokens'"),
    ({"pooling_mode_cls_token": True, "pooling_mode_max_tokens": True}, None, {}, "several ways at once"),
    ([1], None, {}, "not a JSON object"),
    ({}, ["Transformer", "Pooling", "Dense"], {}, "has no model.safetensors"),
    ({}, ["Transformer", "Pooling", "LSTM"], {}, "Transformer, Pooling, LSTM"),
    ({}, ["Transformer"], {}, "runs a text through Transformer;"),
    ({}, [], {}, "runs a text through ;"),
    ({}, ["StaticEmbedding", "Pooling"], {}, "StaticEmbedding, Pooling"),
    ({"token_weights": [1]}, None, {}, r"token_weights in 1_Pooling/config\.json"),
    *((None, None, {"modules.json": value}, r"modules\.json") for value in (
        {}, [{"type": "a.Pooling"}], [{"type": "a.Transformer", "path": "../x"}], ["a"], [1])),
    *((MEAN, ["Transformer", "Pooling"], {file: settings}, key) for file, settings, key in (
        (BERT, {"transformer_task": "fill-mask"}, "transformer_task"),
        (BERT, {"module_output_name": "sentence_embedding"}, "module_output_name"),
        (BERT, {"modality_config": {"text": TEXT_METHOD}}, "modality_config.text"),
        (BERT, {"processing_kwargs": {"text": {"add_special_tokens": False}}}, "processing_kwargs.text"),
        (BERT, {"config_args": {"is_decoder": True}}, "config_args.is_decoder"),
        (BERT, {"config_args": {"use_sliding_window": True}}, "config_args.use_sliding_window"),
        (OTHER, {"truncate_dim": 16}, "truncate_dim"),
        (OTHER, {"default_prompt_name": "query"}, "default_prompt_name"),
        (OTHER, {"default_prompt_name": ["query"]}, "default_prompt_name"),
    )),
    ({**MEAN, "include_prompt": False}, ["Transformer", "Pooling"], {OTHER: {"prompts": {"query": "find: "}}}, "include_prompt"),
]  # fmt: skip


@pytest.mark.parametrize(("pooling", "modules", "files", "message"), REFUSED)
def test_what_shapes_a_vector_and_is_not_done_is_refused_before_the_load(
    pooling, modules, files, message, checkpoint
):
    say(checkpoint, pooling, modules)
    for file, settings in files.items():
        (checkpoint / file).write_text(json.dumps(settings))
    with pytest.raises(InputError, match=message):
        find(checkpoint)


def test_the_digest_covers_the_pooling(checkpoint):
    task, encoder = task_catalog.find("pooling")(), task_catalog.find("default")()
    plain, features = (each.find(str(checkpoint)).digest for each in (task, encoder))
    say(checkpoint, {"pooling_mode_cls_token": True})
    assert task.find(str(checkpoint)).digest != plain
    assert encoder.find(str(checkpoint)).digest == features
    assert encoder.find(str(checkpoint)).described is None
    say(checkpoint, modules=["Transformer", "Pooling"])
    one = encoder.find(str(checkpoint)).described
    say(checkpoint, {"pooling_mode_max_tokens": True})
    assert None is not one != encoder.find(str(checkpoint)).described, "files that are only copied"


def test_the_mode_is_on_record_and_may_be_asked_for(checkpoint, tmp_path):
    say(checkpoint, {**CONFIG, "pooling_mode_cls_token": True}, length=16)
    asked = [
        ({}, "cls", 16),
        ({"mode": "max", "normalize": True}, "max", 40),
        ({"max_seq_length": 8}, "cls", 8),
    ]
    for number, (options, mode, length) in enumerate(asked):
        subject = load(checkpoint, tmp_path / str(number), **options)
        assert subject.resolved_options["pooling"] == {"mode": mode, "normalize": "normalize" in options}
        assert subject.resolved_options["max_seq_length"] == length == subject.fields["max_sequence_length"]


def test_settings_that_version_6_writes_for_an_ordinary_model_are_taken(checkpoint):
    text = {"method": "forward", "method_output_name": "last_hidden_state"}
    arguments = {
        "attn_implementation": "sdpa",
        "add_pooling_layer": False,
        "revision": "main",
        "torch_dtype": "auto",
    }
    transformer = {
        "transformer_task": "feature-extraction",
        "modality_config": {"text": text},
        "model_args": arguments,
    }
    transformer |= {"module_output_name": "token_embeddings", "processing_kwargs": {}, "unpad_inputs": None}
    pooling = {"embedding_dimension": 32, "pooling_mode": "cls", "include_prompt": False}
    say(checkpoint, pooling, ["Transformer", "Pooling", "Dropout", "Normalize"])
    (checkpoint / "sentence_bert_config.json").write_text(json.dumps(transformer))
    settings = {"prompts": {"query": "", "document": ""}, "default_prompt_name": None}
    (checkpoint / "config_sentence_transformers.json").write_text(json.dumps(settings))
    read = read_pooling(checkpoint)
    assert (read.mode, read.normalize, read.default_prompt) == ("cls", True, None)


def test_the_longest_input_may_be_in_the_tokenizer_which_may_be_for_lower_case(checkpoint, tmp_path):
    from tokenizers import Tokenizer

    path = checkpoint / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "model_max_length": 8}))
    assert load(checkpoint, tmp_path / "tokenizer").fields["max_sequence_length"] == 8
    say(checkpoint, length=12)
    assert load(checkpoint, tmp_path / "both").fields["max_sequence_length"] == 12
    (checkpoint / "sentence_bert_config.json").rename(checkpoint / "sentence_roberta_config.json")
    assert load(checkpoint, tmp_path / "older").fields["max_sequence_length"] == 12
    (checkpoint / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    load(checkpoint, tmp_path / "out")
    published = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    assert published.encode("THE PATIENT").tokens == ["the", "patient"]


def test_the_default_prompt_is_published_and_put_before_each_text(checkpoint, tmp_path):
    from onnxreg.converters.evaluation.answers import TextModel, run_texts
    from onnxreg.converters.evaluation.tokens import TextTokenizer

    settings = {"prompts": {"query": "the patient ", "document": ""}, "default_prompt_name": "query"}
    (checkpoint / "config_sentence_transformers.json").write_text(json.dumps(settings))
    loaded = load(checkpoint, tmp_path / "out")
    assert loaded.resolved_options["pooling"]["prompt"] == "the patient "
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert settings.items() <= config.items()
    graph = export(checkpoint, "pooling")
    assert isinstance(graph, bytes)
    (tmp_path / "out" / "model.onnx").write_bytes(graph)
    tokenizer = TextTokenizer.read(tmp_path / "out" / "tokenizer.json", 16)
    first, second = (
        run_texts(TextModel(tmp_path / "out" / "model.onnx", tokenizer, (), values), [text])
        for values, text in ((config, "was seen"), ({}, "the patient was seen"))
    )
    assert first["embeddings"][0]["vector"] == second["embeddings"][0]["vector"]
    assert first["prompt"] == "the patient " and "prompt" not in second
