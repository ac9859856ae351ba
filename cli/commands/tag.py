"""`reg tag`: moving a channel."""

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import ChannelArgument, Reason, RefArgument

EXAMPLES = ("reg tag acme/pii-small:1.2.0 stable --reason 'passed the field test'",)


def command(
    context: typer.Context,
    ref: RefArgument,
    channel: ChannelArgument,
    reason: Reason = None,
) -> None:
    """Move a channel to a version; the log records the move."""
    session: Session = context.obj
    version = session.open().tag(ref, channel, reason)
    session.say(f"{version.name}:{channel} is {version.version}")
