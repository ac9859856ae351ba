"""A small BERT tokenizer with all kinds of pieces, made on the spot."""

import string
from typing import Any

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = "the patient anna born on may street un ##able ##ing ##s straße 中 文"
LETTERS = [letter for letter in string.ascii_lowercase + string.digits if letter != "q"]
MARKS = [*".,:;-@/()'", "Ä", "É", "ß", "и"]
VOCABULARY = [*SPECIAL, *WORDS.split(), *LETTERS, *(f"##{letter}" for letter in LETTERS), *MARKS]


def wordpiece() -> Any:
    """A tokenizer as `tokenizers` has it."""
    from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

    numbers = {piece: number for number, piece in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]", max_input_chars_per_word=20))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = [("[CLS]", numbers["[CLS]"]), ("[SEP]", numbers["[SEP]"])]
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=ends)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIAL])
    return tokenizer
