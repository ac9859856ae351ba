"""`pooling`: one vector for each text, as the checkpoint's own sentence-transformers configuration says."""

from typing import Any

from onnxreg.converters.passes.tools.torch_model import TorchModel
from onnxreg.converters.tasks.checkpoints import sentence_files
from onnxreg.converters.tasks.checkpoints.checkpoint import LoadedCheckpoint, find_checkpoint
from onnxreg.converters.tasks.checkpoints.sentence_files import Mode, SentenceConfig
from onnxreg.converters.tasks.checkpoints.task_heads import BATCH, ENCODER
from onnxreg.converters.tasks.task import LocatedSource
from onnxreg.converters.tasks.text import TextOptions, TextTask, torch_model


class PoolingOptions(TextOptions, title="Options"):
    """`mode` and `normalize` in place of the checkpoint's own; a checkpoint that has none is pooled by `mean`."""

    mode: Mode | None = None
    normalize: bool | None = None


class Pooling(TextTask):
    """An encoder and the pooling of its token vectors: `embeddings`, `[batch, hidden]`."""

    id = "pooling"
    head = ENCODER

    Options = PoolingOptions

    def find(self, source: str) -> LocatedSource:
        checkpoint_source = find_checkpoint(source, self.head, self.trust_remote_code, sentences=True)
        if self.options.mode is None:
            sentence_files.read(checkpoint_source.location)
        return checkpoint_source

    def longest(self, checkpoint: LoadedCheckpoint) -> int:
        trained = self._config(checkpoint).max_length
        return min(super().longest(checkpoint), trained or self.options.max_seq_length)

    def module(self, checkpoint: LoadedCheckpoint, examples: dict[str, Any]) -> TorchModel:
        config = self._config(checkpoint)
        module = pooled(checkpoint.model, config.mode or "mean", config.normalize)
        return torch_model(module, examples, {"embeddings": (BATCH,)})

    def resolved_options(self, checkpoint: LoadedCheckpoint) -> dict[str, Any]:
        config = self._config(checkpoint)
        return {"pooling": {"mode": config.mode or "mean", "normalize": config.normalize}}

    def _config(self, checkpoint: LoadedCheckpoint) -> SentenceConfig:
        """Return the checkpoint's configuration, overridden by the options."""
        options, mode, normalize = self.options, self.options.mode, self.options.normalize
        config = SentenceConfig() if options.mode else sentence_files.read(checkpoint.directory)
        return SentenceConfig(
            mode or config.mode, config.normalize if normalize is None else normalize, config.max_length
        )


def pooled(encoder: Any, mode: Mode, normalize: bool) -> Any:
    """Wrap an encoder to return `embeddings`, `[batch, hidden]`, as sentence-transformers does.

    Only positions that `attention_mask` leaves in count. `mean` averages them, `max` takes each dimension,
    `cls` the first position, `last` the last one. `normalize` makes each embedding as long as 1.
    """
    import torch

    pool = {"mean": _mean, "cls": _first, "max": _max, "last": _last}[mode]

    class Pooled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = encoder

        def forward(self, **inputs: Any) -> Any:
            hidden = self.encoder(**inputs, return_dict=True).last_hidden_state
            embeddings = pool(hidden, inputs["attention_mask"])
            return torch.nn.functional.normalize(embeddings, p=2.0, dim=1) if normalize else embeddings

    return Pooled().eval()


def _mean(hidden: Any, mask: Any) -> Any:
    counts = mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * counts).sum(1) / counts.sum(1).clamp(min=1e-9)


def _first(hidden: Any, mask: Any) -> Any:
    return hidden[:, 0]


def _max(hidden: Any, mask: Any) -> Any:
    return hidden.masked_fill(mask.unsqueeze(-1) == 0, -1e9).amax(1)


def _last(hidden: Any, mask: Any) -> Any:
    """Take the last unmasked position, also with padding at the left."""
    import torch

    last = (mask * torch.arange(mask.shape[1], device=mask.device)).argmax(1)
    return hidden.gather(1, last[:, None, None].expand(-1, 1, hidden.shape[-1])).squeeze(1)
