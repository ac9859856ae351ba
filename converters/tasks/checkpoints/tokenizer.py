"""Load the fast tokenizer of a checkpoint; each of its tokens must have an embedding."""

from pathlib import Path
from typing import Any

from onnxreg.converters.source.toolchain import refuse_missing
from onnxreg.schema.core.errors import InputError


def load_tokenizer(directory: Path, trust_remote_code: bool) -> Any:
    """Load a fast tokenizer that pads and truncates only on request; InputError if the checkpoint has none."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(
            directory, use_fast=True, local_files_only=True, trust_remote_code=trust_remote_code
        )
    except Exception as error:
        refuse_missing(error, "the tokenizer of the checkpoint")
        reason = str(error).replace(str(directory), "the checkpoint").strip() or type(error).__name__
        raise InputError(
            f"the tokenizer of the checkpoint could not be loaded: {reason.splitlines()[0][:300]}",
            "the checkpoint must hold a tokenizer.json",
        ) from error
    if not tokenizer.is_fast:
        raise InputError(
            f"{type(tokenizer).__name__} has no fast form, so there is no tokenizer.json to ship",
            "convert the tokenizer with transformers and save it beside the checkpoint",
        )
    if not tokenizer.get_vocab().keys() - set(tokenizer.all_special_tokens):
        raise InputError(
            "the checkpoint has no tokenizer: nothing but special tokens is in its vocabulary",
            "save the tokenizer beside the model: tokenizer.save_pretrained(DIRECTORY)",
        )
    # A padding or truncation baked into tokenizer.json would make every app run at full length.
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.backend_tokenizer.no_truncation()
    return tokenizer


def check_vocabulary(model: Any, tokenizer: Any) -> None:
    """Raise InputError for a token without a row in the embedding table."""
    rows = getattr(model.get_input_embeddings(), "num_embeddings", None)
    highest = max(tokenizer.get_vocab().values(), default=-1)
    if rows is not None and highest >= rows:
        raise InputError(
            f"the tokenizer has tokens up to {highest}, but the model has embeddings for {rows}",
            "give the tokenizer that the checkpoint was trained with, or resize the embeddings and train them",
        )
