"""`reg tag`: moving a channel."""

from typing import Annotated

import typer

from onnxreg.cli.options import Reason, RefArgument
from onnxreg.cli.session import Session

EXAMPLES = ("reg tag acme/pii-small:1.2.0 stable --reason 'passed the field test'",)


def command(
    context: typer.Context,
    ref: RefArgument,
    channel: Annotated[str, typer.Argument(help="The channel, such as stable; a version never moves.")],
    reason: Reason = None,
) -> None:
    """Move a channel to a version; the move stands in the log."""
    session: Session = context.obj
    found = session.open().tag(ref, channel, reason)
    session.say(f"{found.name}:{channel} is {found.version}")
