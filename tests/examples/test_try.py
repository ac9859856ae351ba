"""The script of *Try it* beside Python: pixels as Pillow scales them, tokens where `tokenizers` finds them, spans as in evaluations."""

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.e2e.pieces import wordpiece
from support.servers.client_package import CLIENT, installed
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from onnxreg.converters.evaluation.decoding import decode, runs, tag_scheme
from onnxreg.converters.tasks.preprocessing import IMAGE_TOLERANCE, draw_photographs, image_input
from onnxreg.converters.tasks.text import SENTENCES
from onnxreg.schema.manifest.manifest import Preprocessing

TEXT = " ".join(SENTENCES)
TEXTS = (
    TEXT,
    "Hello  wörld  😀 x",
    "naïve café — “quoted” 日本語",
    "a\tb\n\nc don't 3.14",
    "😀😀 😀 ok",
    "",
    "  ",
    "İstanbul ß",
)
SCRIPT = """
import { readFileSync } from 'node:fs'
import { numbersOf } from '%s/pixels.mjs'
import { placesOf, spansOf, tagsOf } from '%s/spans.mjs'
const asked = JSON.parse(readFileSync(0))
const commands = {
  async numbers() {
    return asked.map(({ image, preprocessing }) => Array.from(numbersOf(image, preprocessing).data))
  },
  async places() {
    const { Tokenizer } = await import('%s/@huggingface/tokenizers/dist/tokenizers.mjs')
    const tokenizer = new Tokenizer(asked.tokenizer, {})
    return asked.texts.map((text) => {
      const { ids, tokens } = tokenizer.encode(text)
      return [ids, placesOf(tokenizer, asked.tokenizer, text, tokens)]
    })
  },
  async spans() {
    return asked.map(({ text, places, tags, used }) => {
      const meanings = tagsOf(tags)
      return spansOf(text, places, used.map((tag) => meanings[tag]))
    })
  },
}
console.log(JSON.stringify(await commands[process.argv[1]]()))
"""


def ask(command: str, question: Any, modules: Path = CLIENT) -> Any:
    """What the script answers to a question in JSON."""
    code = SCRIPT % (CLIENT.as_uri(), CLIENT.as_uri(), modules.as_uri())
    words = ["node", "--input-type=module", "--eval", code, command]
    done = subprocess.run(
        words, check=False, input=json.dumps(question), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_an_image_becomes_the_numbers_of_pillow():
    photographs, questions, expected = draw_photographs(), [], []
    wanted = [(filter_, *size) for filter_ in ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")
              for size in (([9, 14], None), ([30, 30], 48), ([120, 130], 140))]  # fmt: skip
    for number, (resample, size, resize) in enumerate(wanted):
        photograph, color = photographs[number % 4], ("RGB", "BGR", "L")[number % 5 % 3]
        channels = 1 if color == "L" else 3
        stated = {"size": size, "mean": [0.4, 0.5, 0.6][:channels], "std": [0.2, 0.3, 0.25][:channels]}
        stated |= {"color": color, "resample": resample, "layout": ("NCHW", "NHWC")[number % 2]}
        stated |= {} if resize is None else {"resize": resize}
        data = np.asarray(photograph.convert("RGBA"))
        image = {"width": data.shape[1], "height": data.shape[0], "data": data.reshape(-1).tolist()}
        questions.append({"image": image, "preprocessing": stated})
        expected.append(image_input(photograph, Preprocessing.from_json(stated, "preprocessing")).reshape(-1))
    for question, numbers, right in zip(questions, ask("numbers", questions), expected, strict=True):
        assert np.allclose(numbers, right, rtol=0, atol=IMAGE_TOLERANCE), question["preprocessing"]


def of_bytes() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    options: Any = {"vocab_size": 400, "special_tokens": ["<s>", "</s>"], "initial_alphabet": alphabet}
    tokenizer.train_from_iterator(SENTENCES, trainers.BpeTrainer(show_progress=False, **options))
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    return tokenizer


def cased() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    options: Any = {"vocab_size": 250, "special_tokens": ["[UNK]", "[CLS]", "[SEP]"], "show_progress": False}
    tokenizer.train_from_iterator(SENTENCES, trainers.WordPieceTrainer(**options))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    return tokenizer


@pytest.mark.more
@pytest.mark.parametrize("make", [wordpiece, cased, of_bytes])
def test_tokens_are_where_the_library_finds_them(make, tmp_path):
    tokenizer = make()
    packages = {name: json.loads((CLIENT / "package.json").read_text("utf-8"))["devDependencies"][name]
                for name in ("@huggingface/tokenizers",)}  # fmt: skip
    modules = installed(CLIENT.parents[1] / ".cache" / "try", json.dumps({"dependencies": packages}))
    question = {"tokenizer": json.loads(tokenizer.to_str()), "texts": TEXTS}
    for text, (ids, places) in zip(TEXTS, ask("places", question, modules), strict=True):
        right = tokenizer.encode(text)
        assert ids == right.ids, text
        trimmed = [[end - len(text[start:end].lstrip()), end] for start, end in right.offsets]
        shown = zip(trimmed, right.special_tokens_mask, strict=True)
        assert places == [None if mask or start == end else [start, end] for (start, end), mask in shown], (
            text
        )


def test_spans_are_those_of_an_evaluation():
    schemes = (
        ["O", "B-NAME", "I-NAME", "B-DATE", "I-DATE"], ["O", "I-NAME", "I-DATE"], ["NAME_B", "NAME_E", "NAME_S", "NAME_M", "O"],
        ["O", "E-MAIL", "B-NAME", "I-NAME"], ["U-X", "B-X", "L-X", "I-X", "o"], ["HEPATITIS_B", "OTHER", "O"], ["b.x", "i.x"],
    )  # fmt: skip
    generator, questions, expected = random.Random(0), [], []
    for number in range(60):
        tags, text = schemes[number % len(schemes)], "Änna 😀 called 日本 on May 3rd."
        edges = sorted(generator.sample(range(len(text) + 1), 12))
        places = [list(pair) for pair in zip(edges[::2], edges[1::2], strict=True)]
        used = [generator.randrange(len(tags)) for _ in places]
        scheme = tag_scheme(tuple(tags))
        labels = decode(np.array(used), np.array(places), len(text), scheme)
        questions.append({"text": text, "places": places, "tags": tags, "used": used})
        expected.append([
            {"start": start, "end": end, "label": scheme.names[label], "text": text[start:end]}
            for start, end, label in runs(labels)
        ])  # fmt: skip
    assert ask("spans", questions) == expected
