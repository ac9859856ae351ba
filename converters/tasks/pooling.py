"""`pooling`: one vector for each text, as the checkpoint's own sentence-transformers configuration says."""

from typing import Any

from onnxreg.converters.passes.tools.torch_model import TorchModel
from onnxreg.converters.tasks.checkpoints import sentence_files
from onnxreg.converters.tasks.checkpoints.checkpoint import LoadedCheckpoint, find_checkpoint
from onnxreg.converters.tasks.checkpoints.pooling_module import pooled
from onnxreg.converters.tasks.checkpoints.sentence_files import Mode, SentenceConfig
from onnxreg.converters.tasks.checkpoints.task_heads import BATCH, ENCODER
from onnxreg.converters.tasks.task import LocatedSource
from onnxreg.converters.tasks.text import TextTask, torch_model


class Pooling(TextTask):
    """An encoder and the pooling of its token vectors: `embeddings`, `[batch, hidden]`."""

    id = "pooling"
    head = ENCODER

    class Options(TextTask.Options):
        """`mode` and `normalize` in place of the checkpoint's own; a checkpoint that has none is pooled by `mean`."""

        mode: Mode | None = None
        normalize: bool | None = None

    def find(self, source: str) -> LocatedSource:
        found = find_checkpoint(source, self.head, self.trust_remote_code, sentences=True)
        if self.options.mode is None:
            sentence_files.read(found.where)
        return found

    def longest(self, checkpoint: LoadedCheckpoint) -> int:
        trained = self._config(checkpoint).max_length
        return min(super().longest(checkpoint), trained or self.options.max_seq_length)

    def module(self, checkpoint: LoadedCheckpoint, examples: dict[str, Any]) -> TorchModel:
        config = self._config(checkpoint)
        module = pooled(checkpoint.model, config.mode or "mean", config.normalize)
        return torch_model(module, examples, {"embeddings": (BATCH,)})

    def got(self, checkpoint: LoadedCheckpoint) -> dict[str, Any]:
        config = self._config(checkpoint)
        return {"pooling": {"mode": config.mode or "mean", "normalize": config.normalize}}

    def _config(self, checkpoint: LoadedCheckpoint) -> SentenceConfig:
        """The checkpoint's, with what was asked for in its place."""
        asked, mode, normalize = self.options, self.options.mode, self.options.normalize
        own = SentenceConfig() if asked.mode else sentence_files.read(checkpoint.directory)
        return SentenceConfig(
            mode or own.mode, own.normalize if normalize is None else normalize, own.max_length
        )
