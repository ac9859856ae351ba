"""The role of a file beside a model, by its name."""

_TOKENIZER = frozenset(
    {"vocab.txt", "vocab.json", "merges.txt", "special_tokens_map.json", "added_tokens.json"}
)
_ROLES = {
    "config.json": "config",
    "id2label.json": "labels",
    "recall_delta.json": "report",
    "sentencepiece.bpe.model": "tokenizer",
    "spiece.model": "tokenizer",
    "spm.model": "tokenizer",
}


def role_of(path: str) -> str:
    """The role of a companion by its file name: config, labels, tokenizer, report, operator-config or other."""
    name = path.rpartition("/")[2]
    if name in _TOKENIZER or (name.startswith("tokenizer") and name.endswith((".json", ".model"))):
        return "tokenizer"
    return "operator-config" if name.endswith(".config") else _ROLES.get(name, "other")
