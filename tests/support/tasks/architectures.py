"""Tiny random models of many architectures of texts, each exported for each task.

A cell is told by an export with the task's own recipe, INT8 included, which loads every graph in ONNX Runtime and holds
it against the model on padded and unpadded batches.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.converters.engine.plan import plan_export
from onnxreg.converters.engine.run_plan import execute
from onnxreg.converters.tasks.task_catalog import task_recipe
from onnxreg.schema.core.errors import ConversionError, InputError

HEADS: Mapping[str, str] = {
    "feature-extraction": "",
    "pooling": "",
    "question-answering": "ForQuestionAnswering",
    "text-classification": "ForSequenceClassification",
    "token-classification": "ForTokenClassification",
}
"""Of each task of text the class of checkpoint that it takes."""

SIZE: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "max_position_embeddings": 40,
}  # fmt: skip
_DISTILBERT = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "max_position_embeddings": 40}
_T5 = {"d_model": 32, "d_ff": 64, "num_layers": 2, "num_heads": 4, "d_kv": 8}
_GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 40}
_ROBERTA = {**SIZE, "type_vocab_size": 1, "max_position_embeddings": 42, "layer_norm_eps": 1e-5}
_DEBERTA = {
    **SIZE, "type_vocab_size": 0, "relative_attention": True, "position_biased_input": False, "max_relative_positions": -1,
    "layer_norm_eps": 1e-7, "pooler_hidden_size": 32, "pooler_hidden_act": "gelu",
}  # fmt: skip
_DEBERTA_V3 = {
    **_DEBERTA, "pos_att_type": "p2c|c2p", "position_buckets": 8, "norm_rel_ebd": "layer_norm", "share_att_key": True,
}  # fmt: skip
_MODERNBERT = {
    **SIZE, "num_hidden_layers": 4, "local_attention": 8, "global_attn_every_n_layers": 3, "classifier_pooling": "mean",
    "norm_bias": False, "attention_bias": False,
}  # fmt: skip
_NARROW = {**SIZE, "embedding_size": 16}
_LLAMA = {**SIZE, "num_key_value_heads": 2, "tie_word_embeddings": False}
_QWEN2 = {**SIZE, "num_key_value_heads": 2, "use_sliding_window": False, "tie_word_embeddings": True}
SPECIAL = {f"{role}_token_id": f"{role}_token" for role in ("pad", "cls", "sep", "bos", "eos")}
SPARE = 4
"""Rows of the embedding table that no token has, as published checkpoints have some."""


@dataclass(frozen=True)
class Architecture:
    """`name` as people call it, `kind` as transformers does.

    `config` has the values of the checkpoint that was published, but for its sizes; `tokenizer` is the class of its
    tokenizer, none for one of words.
    """

    name: str
    kind: str
    config: Mapping[str, Any]
    tokenizer: str | None = None


TEXT: Sequence[Architecture] = (
    Architecture("BERT", "bert", {**SIZE, "type_vocab_size": 2}, "BertTokenizer"),
    Architecture("DistilBERT", "distilbert", _DISTILBERT, "DistilBertTokenizer"),
    Architecture("RoBERTa", "roberta", _ROBERTA, "RobertaTokenizer"),
    Architecture("XLM-R", "xlm-roberta", _ROBERTA, "XLMRobertaTokenizer"),
    Architecture("ELECTRA", "electra", {**_NARROW, "type_vocab_size": 2}, "ElectraTokenizer"),
    Architecture("ALBERT", "albert", {**_NARROW, "hidden_act": "gelu_new"}, "AlbertTokenizer"),
    Architecture("MPNet", "mpnet", {**SIZE, "max_position_embeddings": 42}, "MPNetTokenizer"),
    Architecture("DeBERTa", "deberta", {**_DEBERTA, "pos_att_type": "c2p|p2c"}, "DebertaTokenizer"),
    Architecture("DeBERTa-v3", "deberta-v2", _DEBERTA_V3, "DebertaV2Tokenizer"),
    Architecture("ModernBERT", "modernbert", _MODERNBERT),
    Architecture("GPT-2", "gpt2", _GPT2, "GPT2Tokenizer"),
    Architecture("Llama", "llama", _LLAMA, "LlamaTokenizer"),
    Architecture("Qwen2", "qwen2", _QWEN2, "Qwen2Tokenizer"),
    Architecture("T5", "t5", _T5, "T5Tokenizer"),
)


def save_text_model(architecture: Architecture, suffix: str, directory: Path) -> None:
    """A model with random weights that are large enough to tell it from another, and the tokenizer of its kind.

    LookupError if transformers has no such class.
    """
    import torch
    import transformers

    tokenizer = trained_tokenizer(architecture.tokenizer) if architecture.tokenizer else word_tokenizer()
    ids = {key: getattr(tokenizer, name) for key, name in SPECIAL.items()}
    sizes = {key: tokenizer.vocab[name] for key, name in ids.items() if name}
    sizes["vocab_size"] = len(tokenizer) + SPARE
    config = transformers.AutoConfig.for_model(architecture.kind, **architecture.config, **sizes)
    kind = getattr(transformers, f"AutoModel{suffix}")
    if type(config) not in kind._model_mapping:
        raise LookupError(f"{architecture.name} has no {suffix}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = kind.from_config(config)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def trained_tokenizer(name: str) -> Any:
    """A tokenizer of a class of transformers with a small vocabulary; one without padding pads with its last token."""
    import transformers

    words = " ".join(f"word{index} another {index}" for index in range(100))
    tokenizer = getattr(transformers, name)().train_new_from_iterator([words], vocab_size=300)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def word_tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", *(f"w{index}" for index in range(4, 64))]
    backend = Tokenizer(models.WordLevel({word: at for at, word in enumerate(words)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    inputs = ["input_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_input_names=inputs, **special)


def row(
    architecture: Architecture,
    heads: Any = HEADS,
    workspaces: Path | None = None,
    checkpoints: Path | None = None,
) -> list[str]:
    """What became of each task: the precisions of the graphs, `refused`, or a dash if there is no such class.

    `workspaces` gets a directory with the graphs of each task. `checkpoints` keeps the checkpoints for a later call: a
    tokenizer that is trained once more has another vocabulary, because the trainer breaks ties at random.
    """
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        kept = (checkpoints or scratch) / architecture.name
        return [_cell(architecture, task, heads[task], kept, workspaces or scratch) for task in heads]


def _cell(architecture: Architecture, task: str, suffix: str, checkpoints: Path, workspaces: Path) -> str:
    checkpoint = checkpoints / f"checkpoint{suffix}"
    try:
        if not checkpoint.is_dir():
            save_text_model(architecture, suffix, checkpoint)
    except LookupError:
        return "-"
    try:
        workspace = workspaces / task
        workspace.mkdir()
        draft = execute(plan_export(task_recipe(task, quantize=True), str(checkpoint), "tiny"), workspace)
    except (InputError, ConversionError):
        return "refused"
    return ", ".join(artifact.precision for artifact in draft.artifacts)
