"""The settings on which the bytes of a training run depend. Importing this module does not need torch."""

import hashlib
from dataclasses import asdict, dataclass

from pii_data import Sentence, golden, held_out_sentences, training_sentences


@dataclass(frozen=True)
class Recipe:
    steps: int = 220
    batch: int = 16
    max_tokens: int = 64
    learning_rate: float = 1.5e-4
    seed: int = 20
    threads: int = 2
    training_rows: int = 4000
    held_out_rows: int = 600

    def __post_init__(self) -> None:
        if self.steps < 2:
            raise ValueError("two checkpoints need at least two steps")

    @property
    def checkpoints(self) -> dict[int, str]:
        """The steps whose checkpoints are kept, each with its version."""
        return {max(1, self.steps * 6 // 11): "0.1.0", self.steps: "0.2.0"}

    def training(self) -> list[Sentence]:
        return training_sentences(self.training_rows, self.seed)

    def held_out(self) -> list[Sentence]:
        return held_out_sentences(self.held_out_rows, self.seed)

    def confirming(self) -> list[Sentence]:
        """Return the sentences of a second held-out suite, made from another seed."""
        return held_out_sentences(self.held_out_rows, self.seed + 1)

    def settings(self, encoder: str) -> dict[str, object]:
        """Return the settings that two runs must share to be equal. `encoder` is the SHA-256 of the encoder's weights."""
        return {
            **asdict(self),
            "encoder_sha256": encoder,
            "training_sha256": _digest(self.training()),
            "held_out_sha256": _digest(self.held_out()),
            "confirm_sha256": _digest(self.confirming()),
        }


def _digest(sentences: list[Sentence]) -> str:
    return hashlib.sha256(golden(sentences).encode()).hexdigest()
