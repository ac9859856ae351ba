"""Typer's messages about a command line that it cannot read, in our words."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from typer.exceptions import TyperException

from onnxreg.schema.core.errors import InputError

LATE = ("--registry", "--quiet")
"""The global options, which people write behind the verb."""


@contextmanager
def usage_of(context: Any) -> Iterator[None]:
    """An error that does not say of which command line it is, is of this one (`typer.Context`)."""
    try:
        yield
    except TyperException as error:
        if hasattr(error, "ctx") and error.ctx is None:
            error.ctx = context
        raise


def usage_error(error: TyperException, words: Sequence[str]) -> InputError:
    """The error as an InputError, with the names that may have been meant."""
    near: Sequence[str] = getattr(error, "possibilities", None) or ()
    text = " ".join((error.message if near else _plain(error)).split())
    message, _, meant = text.partition(". Did you mean ")
    near = near or [name.strip("'?") for name in meant.split(", ") if name]
    return InputError(f"{message[:1].lower()}{message[1:].rstrip('.')}", _hint(error, words, near))


def _plain(error: TyperException) -> str:
    """The message; for a value of the wrong kind, in the words that documents get."""
    text = error.format_message()
    cause = error.__cause__
    if cause is None:
        return text
    from pydantic import ValidationError

    from onnxreg.schema.core.problems import first, words

    if not isinstance(cause, ValidationError):
        return text
    problem = first(cause)
    return text.replace(problem["msg"], words(problem))


def _hint(error: TyperException, words: Sequence[str], near: Sequence[str]) -> str:
    if late := next((word for word in words[1:] if word in LATE), None):
        return f"{late} goes before the verb: reg {late} ..."
    if near:
        return f"did you mean {' or '.join(near)}?"
    context = getattr(error, "ctx", None)
    return f"see `{context.command_path if context else 'reg'} --help`"
