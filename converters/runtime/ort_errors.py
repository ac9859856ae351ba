"""ONNX Runtime's error messages without its codes, its source lines, and paths of this machine."""

import re
from pathlib import Path

from onnxreg.converters.source.scrub import scrub

MAX_MESSAGE_CHARS = 500
"""The most characters of a message; a longer one keeps its beginning and its end, where the expected shape is."""

_CODES = re.compile(r"\[ONNXRuntimeError\] : \d+ : \w+ : ")
_SOURCE = re.compile(
    r"/\S+\.(?:cc|h):\d+ [\w:~<>*& ,]+?\((?:[^()]|\([^()]*\))*\)(?: const)? |\b\w+\.(?:cc|h):\d+ \w+ "
)
"""File, line and signature, or name, of the function that failed."""


def with_reason(failure: str, error: Exception, source: Path | None = None) -> str:
    """A message on one line: what failed, then why.

    Args:
        failure: what failed, in our words.
        error: what ONNX Runtime raised.
        source: the file that it was given, if any; paths below its directory and the directories above are taken out.
    """
    reason = str(error)
    if source is not None:
        reason = reason.replace(f"Load model from {source} failed:", "")
    near = Path.cwd() / "graph" if source is None else source.absolute()
    folders = [folder for folder in near.parents if len(folder.parts) > 2 or folder == near.parent]
    reason = scrub(f"{failure}: {_SOURCE.sub('', _CODES.sub('', reason))}", "", *folders)[0]
    line = " ".join(reason.split())
    return (
        line
        if len(line) <= MAX_MESSAGE_CHARS
        else f"{line[: MAX_MESSAGE_CHARS // 2]} ... {line[-MAX_MESSAGE_CHARS // 2 :]}"
    )
