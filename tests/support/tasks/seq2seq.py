"""Tiny encoder-decoders of texts and speech as transformers saves them, with weights that generate several tokens."""

from collections.abc import Mapping
from pathlib import Path

from support.tasks.architectures import trained_tokenizer

KINDS = ("t5", "bart", "marian", "m2m_100", "mbart")
SPEECH = ("whisper", "moonshine")
TEXT = "word1 another 5 word7"
TINY = {
    **{f"{side}_attention_heads": 6 for side in ("encoder", "decoder")},
    **{f"{side}_ffn_dim": 1536 for side in ("encoder", "decoder")},
    "d_model": 384,
    "max_source_positions": 1500,
    "max_target_positions": 448,
    "vocab_size": 51_865,
}
"""The sizes of whisper-tiny, which has four layers."""


def save(kind: str, directory: Path, layers: int = 2, own_sizes: Mapping[str, int] | None = None) -> Path:
    """Save a model with random weights, a tokenizer, and for speech a feature extractor.

    `own_sizes` replaces values of the config, as `TINY` does.
    """
    import torch
    import transformers

    tokenizer = trained_tokenizer("WhisperTokenizer" if kind == "whisper" else "T5Tokenizer")
    start, rules = tokenizer.pad_token_id, {}
    if kind == "whisper":
        tokenizer.add_tokens(["<|startoftranscript|>", "<|notimestamps|>"], special_tokens=True)
        start, silent = tokenizer.convert_tokens_to_ids(["<|startoftranscript|>", "<|notimestamps|>"])
        ends = [tokenizer.eos_token_id]
        rules = {"no_timestamps_token_id": silent, "begin_suppress_tokens": ends, "suppress_tokens": ends}
    special = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    special |= {"bos_token_id": start, "decoder_start_token_id": start, "vocab_size": len(tokenizer) + 4}
    sizes: dict[str, int] = {}
    if kind == "t5":
        sizes = {"d_model": 32, "d_ff": 64, "num_layers": layers, "num_heads": 4, "d_kv": 8}
    elif kind == "moonshine":
        sizes = {"hidden_size": 32, "intermediate_size": 64}
        for side in ("encoder", "decoder"):
            sizes |= {f"{side}_num_hidden_layers": layers, f"{side}_num_attention_heads": 4}
    else:
        each = {"attention_heads": 4, "ffn_dim": 64, "layers": layers}
        sizes = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in each.items()}
        positions = {"max_source_positions": 100, "max_target_positions": 64, "num_mel_bins": 80}
        sizes |= {"d_model": 32, **(positions if kind == "whisper" else {"max_position_embeddings": 64})}
    config = transformers.AutoConfig.for_model(kind, **{**sizes, **special, **(own_sizes or {})})
    auto = transformers.AutoModelForSpeechSeq2Seq if kind in SPEECH else transformers.AutoModelForSeq2SeqLM
    with torch.random.fork_rng(devices=[]):
        for seed in range(20):  # the tokenizer's trainer breaks ties at random
            torch.manual_seed(seed)
            model = auto.from_config(config).eval()
            for parameter in model.parameters():
                parameter.data += (0.3 if kind in SPEECH else 0.8) * torch.randn_like(parameter)
            if kind in SPEECH:
                break
            ids = tokenizer(TEXT, return_tensors="pt").input_ids
            if len({*model.generate(ids, max_new_tokens=15)[0].tolist()}) > 3:
                break
    model.generation_config._from_model_config = False  # which would drop the rules of one kind of model
    for name, value in rules.items():
        setattr(model.generation_config, name, value)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    if kind == "whisper":
        transformers.WhisperFeatureExtractor(chunk_length=config.max_source_positions // 50).save_pretrained(
            directory
        )
    if kind == "moonshine":
        transformers.Wav2Vec2FeatureExtractor(do_normalize=False).save_pretrained(directory)
    return directory
