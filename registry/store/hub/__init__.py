"""A registry in a repository on the Hugging Face Hub, with a card and, for one model, the files that other libraries load.

Start with `hub.py`.
Must not import: other kinds of stores. This module imports nothing of huggingface_hub.
"""

from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import check_tag


def check_layout(layout: str, url: str) -> str | None:
    """The channel of `--layout hub[:CHANNEL]`; None: the newest release. InputError for other text, and if `url` is not on the Hub."""
    kind, colon, channel = layout.partition(":")
    if kind != "hub" or (colon and not channel):
        raise InputError(f"not a layout: {layout[:40]!r}", "write --layout hub, or --layout hub:CHANNEL")
    if not url.startswith("hf://"):
        raise InputError(f"{url} is not a repository on the Hub", "leave --layout out")
    return check_tag(channel) if channel else None
