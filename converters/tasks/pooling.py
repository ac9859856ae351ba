"""`pooling`: one vector for each text, as the checkpoint's own sentence-transformers configuration says."""

from typing import Any

from onnxreg.converters.passes.tools.torch_model import TorchModel
from onnxreg.converters.tasks.checkpoints import sentence_files
from onnxreg.converters.tasks.checkpoints.checkpoint import LoadedCheckpoint, find_checkpoint
from onnxreg.converters.tasks.checkpoints.pooling_module import pooled
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
