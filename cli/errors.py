"""How a failure looks from outside: the one table from family to exit status, and its words on stderr."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from onnxreg.cli import output
from onnxreg.schema.errors import RegError, missing_extra

EXIT_STATUS = {
    "input": 2,
    "not-found": 3,
    "integrity": 4,
    "conflict": 5,
    "remote": 6,
    "conversion": 7,
    "gate": 8,
    "environment": 9,
    "interrupted": 130,
}
"""Every family of `schema.errors`. 0 is success and 1 a bug, which shows its traceback."""


class InterruptError(RegError):
    """The user pressed Ctrl-C."""

    family = "interrupted"


def report(error: RegError | KeyboardInterrupt, as_json: bool = False) -> int:
    """Say on stderr what went wrong and return the exit status.

    With `as_json`: `{"error": {"family", "message", "hint"}}` on one line.
    """
    if isinstance(error, KeyboardInterrupt):
        error = InterruptError("interrupted", "run the command again; nothing half-written was kept")
    if as_json:
        value = {"family": error.family, "message": error.message, "hint": error.hint}
        print(json.dumps({"error": value}), file=sys.stderr)
    else:
        lines = [f"{output.paint('error', sys.stderr)}: {output.printable(error.message)}"]
        lines += [f"  {output.printable(line)}" for line in error.drawing]
        lines += [f"{output.paint('hint', sys.stderr)}: {output.printable(error.hint)}"] if error.hint else []
        print("\n".join(lines), file=sys.stderr)
    return EXIT_STATUS[error.family]


@contextmanager
def needs(extra: str, purpose: str) -> Iterator[None]:
    """Turn the lack of a library into the HostError that names the extra which brings it."""
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module in ("", "onnxreg"):
            raise
        raise missing_extra(module, extra, purpose) from error
