"""The task `pooling` for static embeddings: a text's vector is the mean of its tokens' rows in a table; no network runs."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from onnxreg.converters.source.location import locate
from onnxreg.converters.tasks.checkpoint import TOKENIZER_FILE, LoadedCheckpoint, located_source
from onnxreg.converters.tasks.sentence import MODULE_PATTERNS, modules_of, sentence_files
from onnxreg.converters.tasks.task import LocatedSource
from onnxreg.converters.tasks.text import Pooling
from onnxreg.schema.core.errors import InputError, why

STATIC = "StaticEmbedding"
WEIGHTS = "model.safetensors"
PATTERNS = (*MODULE_PATTERNS, f"*_{STATIC}/*")


def table_of(directory: Path) -> str | None:
    """Return the folder of the embedding table in a directory of sentence-transformers; None without a static embedding."""
    return next((module.path for module in modules_of(directory)[0] if module.kind == STATIC), None)


class StaticPooling(Pooling):
    """Task of static embeddings. As in sentence-transformers, the published tokenizer adds no special tokens."""

    quantizer = "EmbeddingQuantization"
    products = ()

    def find(self, source: str) -> LocatedSource:
        location = locate(source, more=PATTERNS)
        directory, folder = location.directory, table_of(location.directory) or ""
        self.pooling(directory)
        names = [Path(folder, name).as_posix() for name in (WEIGHTS, TOKENIZER_FILE)]
        if missing := [name for name in names if not (directory / name).is_file()]:
            raise InputError(
                f"the static embedding has no {missing[0]}", "save it with sentence-transformers"
            )
        return located_source(location, [*names, *sentence_files(directory)])

    def checkpoint(self, source: LocatedSource, name: str) -> LoadedCheckpoint:
        import torch
        from safetensors.torch import load_file
        from transformers import PreTrainedConfig, PreTrainedTokenizerFast

        directory: Path = source.location
        folder = directory / (table_of(directory) or "")
        try:
            (key, table), *others = load_file(folder / WEIGHTS).items()
            tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / TOKENIZER_FILE))
        except Exception as error:
            raise InputError(f"the static embedding could not be loaded: {why(error)}") from error
        if others or table.ndim != 2:
            message = f"{WEIGHTS} of the static embedding has more than a table: {key[:80]}"
            raise InputError(message, "save it with sentence-transformers")
        backend = tokenizer.backend_tokenizer
        backend.no_padding()
        backend.no_truncation()
        backend.post_processor = None
        if max(tokenizer.get_vocab().values(), default=-1) >= len(table):
            message = f"the tokenizer has more tokens than the table of {len(table)} rows"
            raise InputError(message, "give the tokenizer that it was trained with")

        class StaticConfig(PreTrainedConfig):  # type: ignore[misc, unused-ignore]
            model_type = "static-embedding"

        class Table(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.config = StaticConfig(architectures=[STATIC], hidden_size=table.shape[1])
                self.rows = torch.nn.Embedding(len(table), table.shape[1], _weight=table.float())

            def forward(self, input_ids: Any, attention_mask: Any, return_dict: bool = True) -> Any:
                return SimpleNamespace(last_hidden_state=self.rows(input_ids))

        model = Table()
        return LoadedCheckpoint(model, tokenizer, model.config, (), source.record(name), directory)
