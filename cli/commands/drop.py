"""`reg drop`: taking back a version that nobody else has."""

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import ExactRefArgument, Reason

EXAMPLES = ("reg drop acme/pii-small:1.2.0 --reason 'wrong checkpoint'",)


def command(context: typer.Context, ref: ExactRefArgument, reason: Reason = None) -> None:
    """Take back a version that was never pushed nor pulled; its number is free again.

    The next `reg gc` frees its bytes. If others may have the version, yank it instead: `reg yank`.
    """
    session: Session = context.obj
    version = session.open().drop(ref, reason)
    session.say(f"dropped {version.ref}; `reg gc` frees its bytes")
