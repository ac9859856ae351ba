"""Fine-tune an encoder on sentences, and yield checkpoints.

On one machine the same inputs give the same bytes; another instruction set may round differently.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from pii_data import Sentence, Span
from pii_recipe import Recipe
from pii_tags import IGNORED, TAG_IDS, TAGS, align, decode

Report = Callable[[int, float], None]
"""A function to call after each step, with the step's number and its loss."""

HABITS = ("is_local", "local_files_only", "max_length", "name_or_path", "stride", "truncation_strategy")
"""The settings of a tokenizer that record its origin and its last call; `save` leaves them out."""


@dataclass(frozen=True)
class Tagger:
    model: Any
    tokenizer: Any

    @classmethod
    def load(cls, directory: Path) -> "Tagger":
        """Load a checkpoint. An encoder without a head gets one with random weights from torch's global generator."""
        with _quiet():
            tokenizer = transformers.AutoTokenizer.from_pretrained(directory, local_files_only=True)
            model = transformers.AutoModelForTokenClassification.from_pretrained(
                directory, local_files_only=True, id2label=dict(enumerate(TAGS)), label2id=TAG_IDS
            )
        return cls(model, tokenizer)

    def save(self, directory: Path) -> None:
        """Write a directory that `from_pretrained` reads. The files record neither a place nor a time."""
        self.tokenizer.backend_tokenizer.no_truncation()
        self.tokenizer.backend_tokenizer.no_padding()
        for habit in HABITS:
            self.tokenizer.init_kwargs.pop(habit, None)
        self.model.config._name_or_path = ""
        with _quiet():
            self.model.save_pretrained(directory)
            self.tokenizer.save_pretrained(directory)

    def find(self, sentences: Sequence[Sentence], batch: int = 32) -> list[list[Span]]:
        """Return the spans of each sentence, from the likeliest tag of each token."""
        spans: list[list[Span]] = [[] for _ in sentences]
        by_length = sorted(range(len(sentences)), key=lambda at: len(sentences[at].text))
        self.model.eval()
        with torch.inference_mode():
            for start in range(0, len(by_length), batch):
                chosen = by_length[start : start + batch]
                encoded = self._encode([sentences[at] for at in chosen], max_tokens=None)
                likeliest = self.model(**_padded(encoded)).logits.argmax(-1).tolist()
                for at, tags, offsets in zip(chosen, likeliest, encoded["offset_mapping"], strict=True):
                    spans[at] = decode(tags[: len(offsets)], offsets)
        return spans

    def examples(self, sentences: Sequence[Sentence], max_tokens: int) -> dict[str, torch.Tensor]:
        """Return the tensors of one training batch."""
        encoded = self._encode(sentences, max_tokens)
        offsets = encoded["offset_mapping"]
        tags = [align(s.spans, o) for s, o in zip(sentences, offsets, strict=True)]
        return {**_padded(encoded), "labels": _tensor(tags, IGNORED)}

    def _encode(self, sentences: Sequence[Sentence], max_tokens: int | None) -> Any:
        return self.tokenizer(
            [sentence.text for sentence in sentences],
            truncation=max_tokens is not None,
            max_length=max_tokens,
            return_offsets_mapping=True,
        )


def fine_tune(
    encoder: Path, sentences: Sequence[Sentence], recipe: Recipe, report: Report
) -> Iterator[tuple[int, Tagger]]:
    """Yield the tagger at each of the recipe's checkpoints, with the number of steps so far.

    All items are the same tagger, which goes on learning: save it before you ask for the next item.
    """
    with _determinism(recipe):
        tagger = Tagger.load(encoder)
        order = random.Random(recipe.seed)
        optimizer = torch.optim.AdamW(
            tagger.model.parameters(), lr=recipe.learning_rate, weight_decay=0.01, fused=True
        )
        for step in range(1, recipe.steps + 1):
            batch = order.sample(sentences, recipe.batch)
            report(step, _learn(tagger, optimizer, batch, step, recipe))
            if step in recipe.checkpoints:
                yield step, tagger


def _learn(
    tagger: Tagger, optimizer: torch.optim.Optimizer, batch: Sequence[Sentence], step: int, recipe: Recipe
) -> float:
    """Run one step. The learning rate rises over the first tenth of the run and falls to zero at its end."""
    rise, fall = step / max(1, recipe.steps // 10), (recipe.steps + 1 - step) / recipe.steps
    for group in optimizer.param_groups:
        group["lr"] = recipe.learning_rate * min(1.0, rise, fall)
    tagger.model.train()
    loss = tagger.model(**tagger.examples(batch, recipe.max_tokens)).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(tagger.model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return float(loss.detach())


def _padded(encoded: Any) -> dict[str, torch.Tensor]:
    names = ("input_ids", "attention_mask")
    return {name: _tensor(encoded[name], 0) for name in names}


def _tensor(rows: Sequence[Sequence[int]], fill: int) -> torch.Tensor:
    width = max(len(row) for row in rows)
    return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows])


@contextmanager
def _determinism(recipe: Recipe) -> Iterator[None]:
    """Use a fixed seed, fixed threads and deterministic kernels; restore the caller's settings afterwards."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    with torch.random.fork_rng(devices=[]):
        try:
            torch.manual_seed(recipe.seed)
            torch.set_num_threads(recipe.threads)
            torch.use_deterministic_algorithms(True)
            yield
        finally:
            torch.use_deterministic_algorithms(deterministic)
            torch.set_num_threads(threads)


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide the loading bar of transformers, and its report of a new head and an unused pooler."""
    logging = transformers.utils.logging
    verbosity, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    try:
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bar:
            logging.enable_progress_bar()


def tools() -> dict[str, str]:
    """Return the versions and the instruction set on which the bytes of a run depend."""
    return {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "instruction_set": torch.backends.cpu.get_cpu_capability(),
    }
