"""`reg yank`: taking a version out of use."""

from typing import Annotated

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import ExactRefArgument, Reason, TargetRemote

EXAMPLES = (
    "reg yank acme/pii-small:1.2.0 --reason 'labels in the wrong order'",
    "reg yank acme/pii-small:1.2.0 --undo",
    "reg yank acme/pii-small:1.2.0 --remote origin",
)


def command(
    context: typer.Context,
    ref: ExactRefArgument,
    remote: TargetRemote = None,
    reason: Reason = None,
    undo: Annotated[bool, typer.Option("--undo", help="Take the yank back.")] = False,
) -> None:
    """Stop a version from being resolved, except by its digest."""
    session: Session = context.obj
    registry, store = session.with_remote(remote)
    version = registry.yank(ref, reason, undo, store)
    session.say(f"{version.ref} is {'no longer ' if undo else ''}yanked{session.place(store)}")
