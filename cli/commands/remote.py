"""`reg remote`: names for registries elsewhere."""

from typing import Annotated

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import Json
from onnxreg.cli.render import output

EXAMPLES = ("reg remote add origin /mnt/share/models", "reg remote list", "reg remote remove origin")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The remote's name.")]


def add(
    session: Session,
    name: Name,
    url: Annotated[str, typer.Argument(metavar="PATH|URL", help="A path or URL.")],
) -> None:
    """Give a registry elsewhere a name. It is yours: other users of this registry do not see it."""
    session.open(create=True).remotes.add(name, url)
    session.say(f"remote {name} added")


def list_remotes(session: Session, as_json: Json = False) -> None:
    """List the remotes.

    With --json: {remotes: [{name, url}]}.
    """
    remotes = sorted(session.remotes().urls.items())
    session.show(
        {"remotes": [{"name": name, "url": url} for name, url in remotes]},
        output.table(("NAME", "URL"), remotes),
        []
        if remotes
        else "there are no remotes: reg remote add NAME PATH|URL gives a registry elsewhere a name",
    )


def remove(session: Session, name: Name) -> None:
    """Forget a remote's name; nothing at the remote changes."""
    session.open().remotes.remove(name)
    session.say(f"remote {name} removed")
