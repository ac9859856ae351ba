"""The former names of `log`: they go when nothing uses them."""

from onnxreg.registry.log.log import REWRITTEN, Fetch, Log, mirror_error, read_line, read_segment
from onnxreg.schema.log.state import Channel

__all__ = [
    "REWRITTEN",
    "Fetch",
    "Ledger",
    "channel_of",
    "mirror_error",
    "read_line",
    "read_segment",
    "replay",
]
Ledger = Log
replay = Log.replay


def channel_of(log: Log, tag: str) -> Channel:
    """Return a channel."""
    return log.channel(tag)
