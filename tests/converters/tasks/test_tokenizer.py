"""The checkpoint's tokenizer.json is what the export reads texts with, and what it publishes."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.sampling import sampled
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from onnxreg.converters.engine.plan import plan_export
from onnxreg.converters.engine.run_plan import execute
from onnxreg.converters.profiles import profile_catalog
from onnxreg.converters.tasks import task_catalog
from onnxreg.converters.tasks.checkpoint import load_tokenizer
from onnxreg.converters.tasks.task_catalog import task_recipe
from onnxreg.schema.core.errors import InputError

TEXT = "The Patient was SEEN by Müller on 12.03., w7 42"
PIECES = ["the", "patient", *"abcdefghijklmnopqrstuvwxyzü0123456789.,"]


def word_piece(special: list[str], unknown: str) -> Any:
    pieces = dict.fromkeys([*special, *PIECES, *(f"##{piece}" for piece in PIECES[2:])])
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=unknown))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def unigram(special: list[str], unknown: str) -> Any:
    pieces = [*special, "▁the", "▁patient", "▁", *PIECES[2:]]
    vocabulary = [(piece, -1.0 - number / 100) for number, piece in enumerate(pieces)]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=special.index(unknown)))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return tokenizer


BERT = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
ROBERTA = {
    "bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>", "mask_token": "<mask>",
    "cls_token": "<s>", "sep_token": "</s>",
}  # fmt: skip
LOWER = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
OTHERS: dict[str, tuple[str, dict[str, str], Any, Any]] = {
    "RoBERTa with word pieces": ("RobertaTokenizerFast", ROBERTA, word_piece, LOWER),
    "XLM-R in lower case": ("XLMRobertaTokenizerFast", ROBERTA, unigram, LOWER),
    "BERT without digits": ("BertTokenizer", BERT, word_piece, normalizers.Replace("1", " ")),
    "MPNet in upper and lower case": ("MPNetTokenizerFast", BERT, word_piece, normalizers.NFC()),
    "ALBERT in upper and lower case": ("AlbertTokenizerFast", BERT, unigram, normalizers.NFC()),
}
"""Files that are not what their class usually is."""


def write(directory: Path, kind: str, names: dict[str, str], make: Any, normalizer: Any) -> Any:
    """Write a tokenizer; return it."""
    special = list(dict.fromkeys(names.values()))
    tokenizer = make(special, names["unk_token"])
    tokenizer.normalizer = normalizer
    first, last = names["cls_token"], names["sep_token"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first} $A {last} $B:1 {last}:1",
        special_tokens=[(token, special.index(token)) for token in (first, last)],
    )
    tokenizer.add_special_tokens(special)
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {**names, "tokenizer_class": kind, "model_max_length": 40}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return tokenizer


def publish(checkpoint: Path, task: str, workspace: Path) -> Path:
    workspace.mkdir()
    return execute(plan_export(task_recipe(task), str(checkpoint), "acme/x"), workspace).root


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """An encoder for 128 tokens."""
    from transformers import BertConfig, BertModel

    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    BertModel(BertConfig(vocab_size=128, **shape)).save_pretrained(tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


@pytest.mark.parametrize("case", sampled(OTHERS, 5))
def test_a_file_that_is_not_its_class_is_read_and_published_as_it_is(case, checkpoint, tmp_path):
    from transformers import AutoTokenizer

    file = write(checkpoint, *OTHERS[case])
    expected = file.encode(TEXT).ids
    assert load_tokenizer(checkpoint, False)(TEXT)["input_ids"] == expected
    published = publish(checkpoint, "default", tmp_path / "work")
    assert Tokenizer.from_file(str(published / "tokenizer.json")).encode(TEXT).ids == expected
    assert AutoTokenizer.from_pretrained(published)(TEXT)["input_ids"] == expected


def test_the_class_keeps_its_name_and_the_file_its_special_tokens(checkpoint, tmp_path):
    write(checkpoint, "BertTokenizer", BERT, word_piece, normalizers.BertNormalizer())
    published = publish(checkpoint, "default", tmp_path / "same")
    assert json.loads((published / "tokenizer_config.json").read_text())["tokenizer_class"] == "BertTokenizer"
    write(checkpoint, "BertTokenizer", BERT, word_piece, normalizers.Lowercase())
    (checkpoint / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    published = publish(checkpoint, "default", tmp_path / "other")
    config = json.loads((published / "tokenizer_config.json").read_text())
    assert BERT.items() <= config.items()
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert len(json.loads((published / "tokenizer.json").read_text())["added_tokens"]) == len(BERT)


def pair_of(family: str, directory: Path, **config: Any) -> Any:
    """Save a classifier with a tokenizer that gives the second text another type; return the tokenizer."""
    import torch
    from transformers import AutoConfig, AutoModelForSequenceClassification

    directory.mkdir()
    tokenizer = write(directory, "PreTrainedTokenizerFast", BERT, word_piece, LOWER)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    if family == "xlnet":
        shape = {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64}
    size = tokenizer.get_vocab_size()
    torch.manual_seed(0)
    values = AutoConfig.for_model(family, vocab_size=size, pad_token_id=0, num_labels=2, **shape, **config)
    model = AutoModelForSequenceClassification.from_config(values).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(directory)
    return tokenizer


@pytest.mark.parametrize("family", sampled(["bert", "albert", "xlnet", "rembert", "roformer"], 5))
def test_token_types_of_a_pair_reach_the_model(family, tmp_path):
    import onnxruntime
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    source = tmp_path / "checkpoint"
    tokenizer = pair_of(family, source)
    published = publish(source, "text-classification", tmp_path / "work")
    pair = tokenizer.encode("the patient", "was seen")
    rows = {"input_ids": pair.ids, "attention_mask": pair.attention_mask, "token_type_ids": pair.type_ids}
    feed = {name: np.array([row]) for name, row in rows.items()}
    session = onnxruntime.InferenceSession(published / "model.onnx", providers=["CPUExecutionProvider"])
    assert [item.name for item in session.get_inputs()] == list(feed)
    model = AutoModelForSequenceClassification.from_pretrained(source).eval()
    with torch.no_grad():
        expected = model(**{name: torch.from_numpy(array) for name, array in feed.items()}).logits.numpy()
        other = model(**{name: torch.from_numpy(feed[name]) for name in list(feed)[:2]}).logits.numpy()
    np.testing.assert_allclose(session.run(None, feed)[0], expected, atol=1e-4)
    assert np.abs(expected - other).max() > 1e-3
    client = AutoTokenizer.from_pretrained(published)("the patient", "was seen")
    assert dict(client) == rows


@pytest.mark.parametrize("unused", sampled(["by the model", "by the tokenizer", "as stated"], 3))
def test_types_that_nothing_makes_or_nothing_reads_are_no_input(unused, tmp_path):
    source, names = tmp_path / "checkpoint", ["input_ids", "attention_mask"]
    tokenizer = pair_of("bert", source, type_vocab_size=1 if unused == "by the model" else 2)
    if unused == "as stated":  # the model never saw a type but 0
        (source / "tokenizer_config.json").write_text(json.dumps(BERT | {"model_input_names": names}))
    if unused == "by the tokenizer":
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A", pair="[CLS] $A $B", special_tokens=[("[CLS]", 2)]
        )
        tokenizer.save(str(source / "tokenizer.json"))
    published = publish(source, "text-classification", tmp_path / "work")
    assert json.loads((published / "tokenizer_config.json").read_text())["model_input_names"] == names


def test_the_sample_of_a_graph_with_token_types_has_both(make_checkpoint, tmp_path):
    task = task_catalog.find("token-classification")()
    sample = task.load(task.find(str(make_checkpoint("bert"))), "x", tmp_path).part
    assert set(np.unique(sample.golden["padded"]["token_type_ids"])) == {0, 1}
    assert {number for feed in sample.feeds for number in np.unique(feed["token_type_ids"])} == {0, 1}


@pytest.mark.parametrize("family", sampled(["bert", "roberta"], 2))
def test_no_tokenizer_and_none_is_needed(family, make_checkpoint, tmp_path):
    task, suffix = ("pooling", "") if family == "bert" else ("token-classification", "TokenClassification")
    source = Path(shutil.copytree(make_checkpoint(family, task=suffix), tmp_path / "checkpoint"))
    graphs = []
    for case in ("with", "without"):
        plan = plan_export(task_recipe(task), str(source), "acme/x")
        (tmp_path / case).mkdir()
        draft = execute(plan, tmp_path / case)
        graphs.append((draft.root / "model.onnx").read_bytes())
        assert [bool(plan.warnings()), "tokenizer" in draft.fields] == [case == "without", case == "with"]
        for file in source.glob("tokenizer*"):
            file.unlink()
    assert graphs[0] == graphs[1]


def test_a_phone_and_texts_of_an_evaluation_need_a_tokenizer(make_checkpoint, tmp_path):
    source = Path(shutil.copytree(make_checkpoint("bert"), tmp_path / "checkpoint"))
    (tmp_path / "suite.jsonl").write_text('{"id": "1", "text": "seen by Dr", "gold_spans": []}\n')
    recipe = task_recipe("token-classification", quantize=True)
    judged = {"suite": "suite.jsonl", "metrics": [{"metric": "span_f1", "limit": 0.1}]}
    evaluated = type(recipe).from_json(recipe.to_json() | {"evaluation": judged})
    assert plan_export(evaluated, str(source), "a/b", tmp_path).evaluation
    for file in source.glob("tokenizer*"):
        file.unlink()
    profile = profile_catalog.find("android")
    with pytest.raises(InputError, match="no tokenizer"):
        plan_export(profile.recipe(), str(source), "a/b", profile.document.parent, profile=profile)
    with pytest.raises(InputError, match="no tokenizer"):
        plan_export(evaluated, str(source), "a/b", tmp_path)
