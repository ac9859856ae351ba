"""`reg diff`: what changed between two versions."""

from typing import Annotated

import typer

from onnxreg.cli import output
from onnxreg.cli.options import Json, complete_name
from onnxreg.cli.session import Session

EXAMPLES = (
    "reg diff acme/pii-small:1.1.0 acme/pii-small:1.2.0",
    "reg diff acme/pii-small:stable acme/pii-small --json",
)


def command(
    context: typer.Context,
    old: Annotated[str, typer.Argument(help="The version before.", autocompletion=complete_name)],
    new: Annotated[str, typer.Argument(help="The version after.", autocompletion=complete_name)],
    as_json: Json = False,
) -> None:
    """Compare two versions: every change of the manifest, the worst first, and whether an app can go on unchanged.

    With --json: {format, format_version, compatible, summary, counts: {severity: n}, changes: [{kind, path,
    severity, artifact?, old, new, message}]}.
    """
    session: Session = context.obj
    found = session.open().diff(old, new)
    if as_json:
        output.write_json(found.to_json())
        return
    session.say(found.summary)
    for severity, count in found.counts.items():
        if count:
            session.say("", f"{output.paint(severity)} ({count})")
            changes = [change for change in found.changes if change.severity == severity]
            session.say(*(f"  {output.printable(change.message)}" for change in changes))
