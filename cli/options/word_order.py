"""Arguments that were typed in the wrong order."""

from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import is_name

REF_MARKS = frozenset("/:@")
"""The characters that a REF may have, and a channel may not."""


def check_channel_last(verb: str, ref: str, channel: str) -> None:
    """Raise InputError if the first word may be a channel, and the second cannot be one."""
    if REF_MARKS & set(channel) and not REF_MARKS & set(ref):
        raise InputError(
            f"{channel} is not a channel", f"the version comes first: reg {verb} {channel} {ref}"
        )


def check_model_first(verb: str, ref: str, remote: str | None) -> None:
    """Raise InputError if the first word is a path or URL, and the second may be a REF."""
    is_place = ref.startswith((".", "/")) or "://" in ref
    if remote is not None and is_place and is_name(remote.partition(":")[0]):
        raise InputError(f"{ref} is not a model", f"the model comes first: reg {verb} {remote} {ref}")
