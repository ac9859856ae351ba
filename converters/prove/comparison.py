"""The counts of one proof, and the rules by which converters round to float16."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Largest:
    """The largest error in steps of its scale (or units of the last place), and the tensor and index with it."""

    steps: float = 0.0
    tensor: str = ""
    index: tuple[int, ...] = ()


@dataclass
class Comparison:
    """The counts of one proof; `doubts` are the reasons why it is bounded only, in words for people.

    `half_rules` are the rules for float16 that gave every value so far.
    """

    tensors: int = 0
    weights: int = 0
    quantized: int = 0
    clipped: int = 0
    largest: Largest = field(default_factory=Largest)
    scales: Counter[str] = field(default_factory=Counter)
    roundings: Counter[str] = field(default_factory=Counter)
    half_rules: list[str] = field(default_factory=lambda: list(HALF_RULES))
    doubts: list[str] = field(default_factory=list)

    def seen(self, error: float, tensor: str, index: tuple[int, ...]) -> None:
        if error > self.largest.steps:
            self.largest = Largest(error, tensor, index)


HALF_RULES: dict[str, tuple[float, float]] = {
    "nearest": (0.0, float("inf")),
    "float16 5.96e-08..65504": (5.96e-08, 65504.0),
    "float16 1e-07..65504": (1e-07, 65504.0),
    "float16 1e-07..10000": (1e-07, 1e4),
}
"""The bounds of converters: what is smaller or larger becomes the bound, with its sign. Zero and infinity stay."""
