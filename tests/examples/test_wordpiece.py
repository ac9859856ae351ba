"""examples/web-client/wordpiece.mjs says what the `tokenizers` library says."""

import json
import random
import shutil
import subprocess
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from pii_data import held_out_sentences
from support.e2e.pieces import WORDS, wordpiece
from support.sampling import sampled

NODE = shutil.which("node")
SCRIPT = Path(__file__).with_name("wordpiece.mjs")
SENTENCES = [
    "",
    " \t\r\n ",
    "The patient Anna was born on 3 May 1990.",
    "unable unables unabling UNABLE",
    "a" * 20 + " " + "a" * 21,
    "Äpfel, ÉCOLE, straße STRASSE İstanbul Σίσυφος ﬁne",
    "e\u0301 a\u0308 \u0301alone",
    "中文 text中mixed文 㐀 𠀀 豈",
    "한국어 ひらがな カタカナ",
    "no\u00a0break thin\u2009space zero\u200bwidth soft\u00adhyphen line\u2028end",
    "null\0 replacement\ufffd bell\x07 private\ue000 bom\ufeff",
    "emoji 👩‍👩‍👧 and 🇩🇪 flags",
    "$5+5=10 <b>^`|~ „quotes“ —dash… ¿qué?",
    "typed [SEP] and [MASK], [sep] [CLS][CLS] [UNK]x",
    "quick queue q",
    "مرحبا शुद्ध ไทย",
]

pytestmark = pytest.mark.skipif(NODE is None, reason="node is not installed")


def many() -> list[str]:
    """Real sentences, and heaps of characters of every kind, but for those that came to Unicode later than to the library."""
    found = [sentence.text for sentence in held_out_sentences(500, 1)]
    chance = random.Random(7)
    kinds = [(chr(code), unicodedata.ucd_3_2_0.category(chr(code))) for code in range(0x3200)]
    assigned = [char for char, kind in kinds if kind == unicodedata.category(char) != "Cn"]
    for _ in range(2000):
        words = chance.choices([*WORDS, *assigned, " ", "A", "é"], k=chance.randint(1, 12))
        found.append("".join(words))
    return found


def in_node(tokenizer: Any, sentences: list[str], directory: Path) -> list[Any]:
    (directory / "tokenizer.json").write_text(tokenizer.to_str(), "utf-8")
    (directory / "sentences.json").write_text(json.dumps(sentences))
    command = [str(NODE), SCRIPT, directory / "tokenizer.json", directory / "sentences.json"]
    return list(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))


@pytest.mark.parametrize(
    "options",
    sampled(
        [
            {},
            {"lowercase": False},
            {"strip_accents": False},
            {"lowercase": False, "strip_accents": True},
            {"bert": True},
        ],
        2,
    ),
    ids=str,
)
def test_ids_and_offsets(options: dict[str, bool], tmp_path: Path) -> None:
    tokenizer = wordpiece(**options)
    sentences = [*SENTENCES, *many()]
    wrong = []
    for sentence, found in zip(sentences, in_node(tokenizer, sentences, tmp_path), strict=True):
        wanted = tokenizer.encode(sentence)
        if (found["ids"], found["offsets"]) != (wanted.ids, [list(offset) for offset in wanted.offsets]):
            wrong.append((sentence, found["ids"], wanted.ids, found["offsets"], wanted.offsets))
    assert not wrong, f"{len(wrong)} of {len(sentences)}: {wrong[:3]}"


def test_another_kind_of_tokenizer_is_refused(tmp_path: Path) -> None:
    tokenizer = wordpiece()
    tokenizer.normalizer = None
    with pytest.raises(subprocess.CalledProcessError) as raised:
        in_node(tokenizer, ["a"], tmp_path)
    assert b"the normalizer undefined" in raised.value.stderr
