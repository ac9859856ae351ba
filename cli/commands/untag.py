"""`reg untag`: taking a channel away."""

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import Reason, RefArgument
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import Ref

EXAMPLES = ("reg untag acme/pii-small:beta --reason 'the trial is over'",)


def command(context: typer.Context, ref: RefArgument, reason: Reason = None) -> None:
    """Remove a channel: NAME:CHANNEL. Versions are kept; the log records the removal."""
    session: Session = context.obj
    parsed = Ref.parse(ref)
    if parsed.tag is None:
        raise InputError(f"{ref} names no channel", f"write {parsed.name}:CHANNEL")
    entry = session.open().untag(parsed.name, parsed.tag, reason)
    session.say(f"{parsed.name}:{parsed.tag} is removed; it was {entry}")
