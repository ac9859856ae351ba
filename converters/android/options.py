"""What may be asked of the android profile."""

from dataclasses import dataclass
from pathlib import Path

from onnxreg.converters.android.contract import OPSET
from onnxreg.converters.evaluation.rule import Floors
from onnxreg.schema.errors import InputError


@dataclass(frozen=True)
class AndroidOptions:
    """What may be asked of the profile. `max_seq_length` in tokens; `eval_suite` is a file of golden fixtures."""

    opset: int = OPSET
    int8: bool = True
    int8_embeddings: bool = False
    rewrite: bool = True
    max_seq_length: int = 512
    trust_remote_code: bool = False
    eval_suite: Path | None = None
    min_gold_chars: int = 200
    min_parent_recall: float = 0.5

    def floors(self) -> Floors:
        """What a label needs to be judged; InputError where that is out of range."""
        return Floors(self.min_gold_chars, self.min_parent_recall)


def check_options(options: AndroidOptions) -> None:
    """Raise InputError for a combination that the profile does not have."""
    options.floors()
    if options.opset != OPSET:
        raise InputError(
            f"the android profile has opset {OPSET}; {options.opset} was asked for", "leave --opset out"
        )
    if options.max_seq_length < 1:
        raise InputError(f"the maximum sequence length must be at least 1, not {options.max_seq_length}")
    if options.eval_suite is not None and not options.int8:
        raise InputError("an evaluation suite judges the INT8 file, which --no-int8 leaves out")
    if options.int8_embeddings and not options.int8:
        raise InputError("--int8-embeddings and --no-int8 contradict each other")
