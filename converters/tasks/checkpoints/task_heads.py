"""Heads of checkpoints: the class of transformers that loads each, and the outputs of its graph."""

from collections.abc import Mapping
from dataclasses import dataclass

BATCH, SEQUENCE = "batch", "sequence"


@dataclass(frozen=True)
class TaskHead:
    """`suffix` is the end of the names of its classes, `BertForTokenClassification` and
    `AutoModelForTokenClassification`.

    `outputs` are the dynamic axes, the first ones, of each output; `labelled` says that the last axis counts
    labels.
    """

    suffix: str
    description: str
    outputs: Mapping[str, tuple[str, ...]]
    labelled: bool = False

    @property
    def auto_class(self) -> str:
        return f"AutoModel{self.suffix}"

    def of_use(self, parameter: str) -> bool:
        """Tell if the outputs depend on a parameter: hidden states do not depend on the pooler of BERT."""
        return bool(self.suffix) or parameter.partition(".")[0] != "pooler"


ENCODER = TaskHead("", "encoder", {"last_hidden_state": (BATCH, SEQUENCE)})
SPANS = TaskHead(
    "ForQuestionAnswering",
    "question answerer",
    {"start_logits": (BATCH, SEQUENCE), "end_logits": (BATCH, SEQUENCE)},
)
IMAGES = TaskHead("ForImageClassification", "image classifier", {"logits": (BATCH,)}, labelled=True)
TEXTS = TaskHead("ForSequenceClassification", "text classifier", {"logits": (BATCH,)}, labelled=True)
TOKENS = TaskHead("ForTokenClassification", "token classifier", {"logits": (BATCH, SEQUENCE)}, labelled=True)
