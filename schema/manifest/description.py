"""The description of a model, in one line of plain text. Light: no pydantic on this path."""

import re

from onnxreg.schema.core.errors import InputError

MAX_DESCRIPTION_CHARS = 500
PATTERN = r"^[^\u0000-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]{1,500}$"
"""One line: no control characters, line separators, or characters that turn the direction of writing."""


def check_description(text: str) -> str:
    """Return the text. Raises InputError if it is empty, too long, or not one line of plain text."""
    if not 1 <= len(text) <= MAX_DESCRIPTION_CHARS:
        raise InputError(
            f"a description has 1 to {MAX_DESCRIPTION_CHARS} characters, not {len(text)}",
            "say what the model does, in a sentence or two",
        )
    if re.fullmatch(PATTERN[1:-1], text) is None:
        raise InputError(
            "a description has no line breaks or other control characters", "write it as one line of text"
        )
    return text
