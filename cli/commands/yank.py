"""`reg yank`: taking a version out of use."""

from typing import Annotated

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import Reason, RefArgument

EXAMPLES = (
    "reg yank acme/pii-small:1.2.0 --reason 'labels in the wrong order'",
    "reg yank acme/pii-small:1.2.0 --undo",
)


def command(
    context: typer.Context,
    ref: RefArgument,
    reason: Reason = None,
    undo: Annotated[bool, typer.Option("--undo", help="Take the yank back.")] = False,
) -> None:
    """Stop a version from being resolved, except by its digest. The REF must name the version."""
    session: Session = context.obj
    version = session.open().yank(ref, reason, undo)
    session.say(f"{version.ref} is {'no longer ' if undo else ''}yanked")
