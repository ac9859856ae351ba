"""Tiny random models of many architectures, each exported for each task: what `docs/architectures.md` says.

    python tests/converters/tasks/architectures.py    # write its table again

A cell is told by an export with the task's own recipe, INT8 included, which loads every graph in ONNX Runtime and holds
it against the model on padded and unpadded batches.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnxreg.converters.profiles.of_task import task_recipe
from onnxreg.converters.recipes.execute import execute
from onnxreg.converters.recipes.order import place_order
from onnxreg.schema.errors import ConversionError, InputError

PAGE = Path(__file__).parents[3] / "docs" / "architectures.md"
VOCABULARY, PADDING = 66, 1

HEADS: Mapping[str, str] = {
    "feature-extraction": "",
    "pooling": "",
    "question-answering": "ForQuestionAnswering",
    "text-classification": "ForSequenceClassification",
    "token-classification": "ForTokenClassification",
}
"""Of each task of text the class of checkpoint that it takes."""

SIZE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "pad_token_id": PADDING,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 40,
}


def _distilbert() -> dict[str, Any]:
    size = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "max_position_embeddings": 40}
    return {"vocab_size": VOCABULARY, "pad_token_id": PADDING, **size}


def _t5() -> dict[str, Any]:
    size = {"d_model": 32, "d_ff": 64, "num_layers": 2, "num_heads": 4, "d_kv": 8}
    return {"vocab_size": VOCABULARY, "pad_token_id": PADDING, **size}


def _gpt2() -> dict[str, Any]:
    size = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 40}
    return {"vocab_size": VOCABULARY, "pad_token_id": PADDING, **size}


_DEBERTA_V3 = {
    "relative_attention": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_buckets": 8,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "position_biased_input": False,
}


@dataclass(frozen=True)
class Architecture:
    """`name` as people call it, `kind` as transformers does; `make` writes the checkpoint of a class into a directory."""

    name: str
    kind: str
    config: Mapping[str, Any]
    make: "Callable[[Architecture, str, Path], None]" = field(default=lambda *a: save_text_model(*a))


TEXT: Sequence[Architecture] = (
    Architecture("BERT", "bert", SIZE),
    Architecture("DistilBERT", "distilbert", _distilbert()),
    Architecture("RoBERTa", "roberta", {**SIZE, "type_vocab_size": 1}),
    Architecture("XLM-R", "xlm-roberta", {**SIZE, "type_vocab_size": 1}),
    Architecture("ELECTRA", "electra", {**SIZE, "embedding_size": 16}),
    Architecture("ALBERT", "albert", {**SIZE, "embedding_size": 16}),
    Architecture("MPNet", "mpnet", SIZE),
    Architecture("DeBERTa", "deberta", SIZE),
    Architecture("DeBERTa-v3", "deberta-v2", {**SIZE, **_DEBERTA_V3}),
    Architecture("ModernBERT", "modernbert", {**SIZE, "local_attention": 8, "global_attn_every_n_layers": 2}),
    Architecture("GPT-2", "gpt2", _gpt2()),
    Architecture("Llama", "llama", {**SIZE, "num_key_value_heads": 2}),
    Architecture("Qwen2", "qwen2", {**SIZE, "num_key_value_heads": 2}),
    Architecture("T5", "t5", _t5()),
)


def save_text_model(architecture: Architecture, suffix: str, directory: Path) -> None:
    """A model with random weights that are large enough to tell it from another, and a tokenizer of words.

    LookupError where transformers has no such class.
    """
    import torch
    import transformers

    config = transformers.AutoConfig.for_model(architecture.kind, **architecture.config)
    kind = getattr(transformers, f"AutoModel{suffix}")
    if type(config) not in kind._model_mapping:
        raise LookupError(f"{architecture.name} has no {suffix}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = kind.from_config(config)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(directory)
    save_tokenizer(directory)


def save_tokenizer(directory: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", *(f"w{index}" for index in range(4, VOCABULARY - 2))]
    backend = Tokenizer(models.WordLevel({word: at for at, word in enumerate(words)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    named = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    inputs = ["input_ids", "attention_mask"]
    PreTrainedTokenizerFast(tokenizer_object=backend, model_input_names=inputs, **named).save_pretrained(
        directory
    )


def row(
    architecture: Architecture, heads: Mapping[str, str] = HEADS, workspaces: Path | None = None
) -> list[str]:
    """What became of each task: the precisions of the graphs, `refused`, or a dash if there is no such class.

    `workspaces` gets a directory with the graphs of each task.
    """
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        return [_cell(architecture, task, heads[task], place, workspaces or place) for task in heads]


def _cell(architecture: Architecture, task: str, suffix: str, scratch: Path, workspaces: Path) -> str:
    checkpoint = scratch / f"checkpoint{suffix}"
    try:
        if not checkpoint.is_dir():
            architecture.make(architecture, suffix, checkpoint)
    except LookupError:
        return "-"
    try:
        workspace = workspaces / task
        workspace.mkdir()
        draft = execute(place_order(task_recipe(task, quantize=True), str(checkpoint), "tiny"), workspace)
    except (InputError, ConversionError):
        return "refused"
    return ", ".join(artifact.precision for artifact in draft.artifacts)


def line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def table(architectures: Sequence[Architecture] = TEXT, heads: Mapping[str, str] = HEADS) -> str:
    """In Markdown, one row for each architecture."""
    lines = [line(["architecture", *heads]), line(["---"] * (1 + len(heads)))]
    lines += [line([each.name, *row(each, heads)]) for each in architectures]
    return "\n".join(lines)


def written(name: str) -> list[str]:
    """The lines of a table of the page."""
    text = PAGE.read_text(encoding="utf-8")
    found = text.partition(f"<!-- generated: {name} -->\n")[2].partition("<!-- end -->")[0]
    return found.strip().splitlines()


def write(name: str, lines: str) -> None:
    """Put a table into the page."""
    before, mark, rest = PAGE.read_text(encoding="utf-8").partition(f"<!-- generated: {name} -->\n")
    _, end, after = rest.partition("<!-- end -->")
    PAGE.write_text(f"{before}{mark}\n{lines}\n\n{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    write("text", table())
