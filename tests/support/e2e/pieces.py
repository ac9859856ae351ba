"""A small BERT tokenizer with all kinds of pieces, made on the spot."""

import string
from typing import Any

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [
    "the",
    "patient",
    "anna",
    "born",
    "on",
    "may",
    "street",
    "un",
    "##able",
    "##ing",
    "##s",
    "straße",
    "中",
    "文",
]
LETTERS = [letter for letter in string.ascii_lowercase + string.digits if letter != "q"]
MARKS = [*".,:;-@/()'", "Ä", "É", "ß", "и"]
VOCABULARY = [*SPECIAL, *WORDS, *LETTERS, *(f"##{letter}" for letter in LETTERS), *MARKS]


def wordpiece(lowercase: bool = True, strip_accents: bool | None = None, bert: bool = False) -> Any:
    """A tokenizer as `tokenizers` has it. `bert`: with a BertProcessing instead of a template."""
    from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

    numbers = {piece: number for number, piece in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]", max_input_chars_per_word=20))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip_accents)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    cls, sep = ("[CLS]", numbers["[CLS]"]), ("[SEP]", numbers["[SEP]"])
    tokenizer.post_processor = (
        processors.BertProcessing(sep, cls)
        if bert
        else processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=[cls, sep])
    )
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIAL])
    return tokenizer
