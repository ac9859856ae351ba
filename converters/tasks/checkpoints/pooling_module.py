"""Pooling of token vectors to one vector per text, inside the graph."""

from typing import Any

from onnxreg.converters.tasks.checkpoints.sentence_files import Mode


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
