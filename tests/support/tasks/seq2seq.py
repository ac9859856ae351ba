"""Tiny encoder-decoders of texts as transformers saves them, with weights that generate several tokens."""

from pathlib import Path

from support.tasks.architectures import trained_tokenizer

KINDS = ("t5", "bart", "marian", "m2m_100")


def save(kind: str, directory: Path, layers: int = 2) -> Path:
    """Save a model with random weights and a tokenizer."""
    import torch
    import transformers

    tokenizer = trained_tokenizer("T5Tokenizer")
    special = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    special |= {"decoder_start_token_id": tokenizer.pad_token_id, "vocab_size": len(tokenizer) + 4}
    sizes = {"d_model": 32, "d_ff": 64, "num_layers": layers, "num_heads": 4, "d_kv": 8}
    if kind != "t5":
        each = {"attention_heads": 4, "ffn_dim": 64, "layers": layers}
        sizes = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in each.items()}
        sizes |= {"d_model": 32, "max_position_embeddings": 64}
    config = transformers.AutoConfig.for_model(kind, **sizes, **special)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.AutoModelForSeq2SeqLM.from_config(config)
        for parameter in model.parameters():
            parameter.data += 0.8 * torch.randn_like(parameter)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory
