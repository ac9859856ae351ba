"""Tasks of text: what each takes and gives, and what none of them exports."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.sampling import sampled
from support.tasks.architectures import TEXT, save_text_model

from onnxreg.converters import export
from onnxreg.converters.engine.plan import plan_export
from onnxreg.converters.engine.run_plan import execute
from onnxreg.converters.tasks import task_catalog
from onnxreg.converters.tasks.task_catalog import task_recipe
from onnxreg.converters.tasks.text import TextTask
from onnxreg.schema.core.errors import ConversionError, InputError
from onnxreg.schema.manifest.draft import Draft

BOTH = ["batch", "sequence"]
GIVES: dict[str, tuple[str, dict[str, list[Any]]]] = {
    "default": ("", {"last_hidden_state": [*BOTH, 32]}),
    "feature-extraction": ("", {"last_hidden_state": [*BOTH, 32]}),
    "pooling": ("", {"embeddings": ["batch", 32]}),
    "question-answering": ("QuestionAnswering", {"start_logits": BOTH, "end_logits": BOTH}),
    "text-classification": ("SequenceClassification", {"logits": ["batch", 5]}),
    "zero-shot-classification": ("SequenceClassification", {"logits": ["batch", 5]}),
    "sequence-classification": ("SequenceClassification", {"logits": ["batch", 5]}),
    "token-classification": ("TokenClassification", {"logits": [*BOTH, 5]}),
    "fill-mask": ("MaskedLM", {"logits": [*BOTH, 64]}),
}
"""The class of checkpoint that each task takes, and what its graph gives with which axes."""


def shapes(values: Any) -> dict[str, list[Any]]:
    return {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in values
    }


def load(graph: Any) -> Any:
    assert isinstance(graph, bytes)
    return onnx.ModelProto.FromString(graph)


def draft_of(source: Path, task: str, workspace: Path, **asked: Any) -> Draft:
    workspace.mkdir()
    return execute(plan_export(task_recipe(task, **asked), str(source), "acme/x"), workspace)


TYPED = {
    "feature-extraction": ("default", "Feature_Extraction"),
    "pooling": ("embeddings", "sentence-similarity", "similarity"),
    "question-answering": ("qa", "Question-Answering"),
    "text-classification": ("sequence-classification", "sentiment", "sentiment-analysis", "text-ranking"),
    "token-classification": ("ner", "NER", "token_classification"),
    "text2text-generation": ("translation", "summarization", "seq2seq-lm"),
    "text-generation": ("causal-lm", "text-generation-with-past"),
    "text-to-audio": ("text-to-speech",),
    "automatic-speech-recognition": ("audio-ctc", "speech2seq-lm"),
}
"""Names that people type, by the task that they mean."""


def test_every_task_has_a_row_here_and_names_of_other_libraries_are_aliases():
    tasks = {name for name, task in task_catalog.TASKS.items() if issubclass(task, TextTask)}
    tasks -= {
        *["document-question-answering", "table-question-answering", "text-to-audio"]
    }  # other checkpoints
    assert tasks <= GIVES.keys() <= tasks | task_catalog.ALIASES.keys()
    for task, names in TYPED.items():
        assert {task_catalog.find(name).id for name in names} == {task}
    assert set(task_catalog.ALIASES.values()) <= task_catalog.TASKS.keys() - {"image-classification"}
    assert not task_catalog.ALIASES.keys() & task_catalog.TASKS.keys()
    assert task_recipe("embeddings") == task_recipe("pooling")
    assert task_recipe("ner").task == "token-classification"
    page = (Path(__file__).parents[3] / "docs" / "tasks.md").read_text()
    rows = [row for line in page.splitlines() if (row := re.findall("`([^`]+)`", line))]
    listed = {alias: row[0] for row in rows if row[0] in task_catalog.TASKS for alias in row[1:]}
    assert task_catalog.ALIASES.items() <= listed.items()


OF_OTHERS = ("keypoint-detection", "reinforcement-learning")
NEAR = {"embedings": "embeddings", "token-clasification": "token-classification", "nerr": "ner"}


@pytest.mark.parametrize("name", [*NEAR, *OF_OTHERS])
def test_a_mistyped_name_gets_the_nearest_and_a_task_that_is_not_here_is_not_taken_for_another(name):
    message = f"no task is called '{name}'" if name in NEAR else "no task here exports "
    with pytest.raises(InputError, match=message) as caught:
        task_catalog.find(name)
    hint = str(caught.value.hint)
    if name in NEAR:
        assert hint.startswith(f"did you mean {NEAR[name]}")
    else:
        assert "did you mean" not in hint and "export it with " in hint and ", then reg " in hint


OF_TXTAI = ["default", *(task for task in GIVES if task not in task_catalog.ALIASES)]


@pytest.mark.parametrize("task", sampled(OF_TXTAI, 4))
def test_inputs_outputs_and_axes_are_those_of_txtai(task, make_checkpoint):
    (suffix, outputs), family = GIVES[task], "distilbert" if task == "default" else "bert"
    model = load(export(make_checkpoint(family, task=suffix), task))
    names = ("input_ids", "attention_mask", "token_type_ids")[: 3 if family == "bert" else 2]
    assert shapes(model.graph.input) == dict.fromkeys(names, BOTH)
    assert shapes(model.graph.output) == outputs
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 14)]


def tiny(name: str, directory: Path, suffix: str = "", **config: Any) -> Path:
    """A tiny checkpoint of an architecture of docs/architectures.md, with these values in its config."""
    save_text_model(next(one for one in TEXT if one.name == name), suffix, directory)
    path = directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **config}))
    return directory


@pytest.mark.more
@pytest.mark.parametrize("name", sampled(["DeBERTa", "DeBERTa-v3"], 2))
def test_token_types_that_a_model_has_no_embeddings_for_are_no_input(name, tmp_path):
    source = tiny(name, tmp_path / "deberta")
    assert json.loads((source / "config.json").read_text())["type_vocab_size"] == 0
    model = load(export(source, "default"))
    assert list(shapes(model.graph.input)) == ["input_ids", "attention_mask"]


def test_a_decoder_is_exported_without_a_cache(tmp_path):
    source = tiny("GPT-2", tmp_path / "gpt2")
    draft = draft_of(source, "default", tmp_path / "work")
    assert shapes(onnx.load(draft.root / "model.onnx").graph.output).keys() == {"last_hidden_state"}
    told = json.loads((draft.root / "config.json").read_text())
    assert told["use_cache"] is json.loads((source / "config.json").read_text())["use_cache"] is True


def test_a_decoder_without_padding_and_an_encoder_decoder_are_refused_with_the_reason(tmp_path):
    source = tiny("GPT-2", tmp_path / "gpt2", "ForSequenceClassification", pad_token_id=None)
    with pytest.raises(ConversionError, match="if no padding token is defined"):
        export(source, "text-classification")
    source = tiny("GPT-2", tmp_path / "t5", is_encoder_decoder=True)
    for task in ("default", "token-classification"):
        with pytest.raises(InputError, match="takes the words so far as a second input") as caught:
            export(source, task)
        assert "leave --task out" in str(caught.value.hint)


MODULES = {"": "Transformer", "1_Pooling": "Pooling", "2_Dense": "Dense"}
FILES = ("1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors", "3_Other/config.json")


def test_the_modules_of_sentence_transformers_come_along(make_checkpoint, tmp_path):
    """Files that are of no module do not, and trained weights of one are not left out."""
    source = Path(shutil.copytree(make_checkpoint("bert", task=""), tmp_path / "checkpoint"))
    modules = [
        {"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in MODULES.items()
    ]
    (source / "modules.json").write_text(json.dumps(modules))
    (source / "config_sentence_transformers.json").write_text(json.dumps({"cache_dir": str(source)}))
    for path in FILES:
        (source / path).parent.mkdir(exist_ok=True)
        (source / path).write_text('{"pooling_mode_cls_token": true}')
    draft = draft_of(source, "default", tmp_path / "work")
    companions = {file.path for file in draft.companions if file.role == "other"}
    assert companions == {"modules.json", "config_sentence_transformers.json", *FILES[:3]}
    assert (draft.root / "modules.json").read_bytes() == (source / "modules.json").read_bytes()
    assert str(tmp_path) not in (draft.root / "config_sentence_transformers.json").read_text()
    (source / "2_Dense" / "model.safetensors").rename(source / "2_Dense" / "pytorch_model.bin")
    with pytest.raises(InputError, match="2_Dense"):
        export(source)


@pytest.mark.parametrize("task", sampled(["pooling", "default"], 2))
@pytest.mark.parametrize("suffix", sampled(["TokenClassification", "MaskedLM"], 2))
def test_the_encoder_of_a_checkpoint_with_another_head(task, suffix, make_checkpoint):
    """Its pooler is missing, and no output comes from it."""
    model = load(export(make_checkpoint("bert", task=suffix), task))
    assert not [tensor.name for tensor in model.graph.initializer if "pooler" in tensor.name]


@pytest.mark.parametrize(
    ("suffix", "task"), {suffix: task for task, (suffix, _) in GIVES.items() if suffix}.items()
)
def test_a_head_that_was_never_trained_is_refused(suffix, task, make_checkpoint):
    """Also where the config claims to have it."""
    source = make_checkpoint("bert", task="")
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "architectures": [f"BertFor{suffix}"]}))
    with pytest.raises(InputError, match="has no values for") as caught:
        export(source, task)
    assert caught.value.hint


def test_a_chat_template_is_in_the_digest_and_says_nothing_of_this_machine(make_checkpoint, tmp_path):
    source = make_checkpoint("bert", task="")
    template, digests = source / "chat_template.jinja", set()
    for role in ("user", "system"):
        template.write_text(f"{{# by {source}/train.py, /home/jane/chat.py #}}{role}: {{{{ messages }}}}")
        draft = draft_of(source, "default", tmp_path / role)
        assert template.name in {file.path for file in draft.companions}
        text = (draft.root / template.name).read_text()
        assert text == f"{{# by train.py, chat.py #}}{role}: {{{{ messages }}}}"
        digests.add(draft.fields["source"]["digest"])
    assert len(digests) == 2


@pytest.mark.parametrize("task", sampled(["default", "text-classification"], 2))
def test_a_graph_gives_what_the_model_gives_on_other_sizes(task, make_checkpoint):
    import onnxruntime
    import torch
    import transformers

    source = make_checkpoint("electra", task=GIVES[task][0])
    kind = "AutoModel" if task == "default" else "AutoModelForSequenceClassification"
    model = getattr(transformers, kind).from_pretrained(source).eval()
    session = onnxruntime.InferenceSession(export(source, task), providers=["CPUExecutionProvider"])
    for batch, length in ((1, 1), (2, 40), (7, 3)):
        ids = np.random.default_rng(batch).integers(5, 60, (batch, length))
        mask = (np.arange(length) < np.arange(1, batch + 1)[:, None]).astype(np.int64)
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        with torch.no_grad():
            expected = model(**{name: torch.from_numpy(array) for name, array in feed.items()})[0].numpy()
        counts = mask.astype(bool) if task == "default" else ...
        np.testing.assert_allclose(session.run(None, feed)[0][counts], expected[counts], atol=1e-5)


def test_a_model_that_switches_its_attention_by_length_is_refused(tmp_path):
    from transformers import AutoConfig, AutoModel, AutoTokenizer

    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    source = tiny("BERT", tmp_path / "bigbird")
    size = len(AutoTokenizer.from_pretrained(source))
    shape |= {"block_size": 8, "num_random_blocks": 1, "max_position_embeddings": 256, "vocab_size": size}
    config = AutoConfig.for_model("big_bird", **shape)
    model = AutoModel.from_config(config)
    for parameter in model.parameters():
        parameter.data.mul_(3)
    model.save_pretrained(source)
    with pytest.raises(ConversionError, match="changes when it runs"):
        export(source)
    draft = draft_of(source, "default", tmp_path / "work", max_seq_length=56)
    assert draft.fields["max_sequence_length"] == 56
