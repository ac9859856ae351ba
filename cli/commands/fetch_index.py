"""`reg fetch-index`: what a remote says, for use without it."""

from typing import Annotated

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import Json, RemoteOption
from onnxreg.cli.render import output

EXAMPLES = (
    "reg fetch-index --remote origin",
    "reg fetch-index acme/pii-small 'lab/*' --remote s3://models/prod",
    "reg fetch-index acme/pii-small --remote origin --json",
)


def command(
    session: Session,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Models, or patterns such as 'acme/*'; default: all."),
    ] = None,
    remote: RemoteOption = None,
    as_json: Json = False,
) -> None:
    """Store what a remote says about models: index files and logs, no artifacts, and only what changed.

    `ls`, `log` and `resolve` then answer with --offline, and print how old the answer is. A pull stores
    this too.

    With --json: {remote, models: [{name, seq, head, newest}]}; newest may be null.
    """
    registry = session.open(create=True)
    states = registry.fetch_index(names or (), remote)
    url = registry.remotes.url_of(remote)
    rows = [(state.name, state.seq, str(state.head), state.newest_release()) for state in states]
    if as_json:
        models = [
            {"name": name, "seq": seq, "head": head, "newest": newest and str(newest)}
            for name, seq, head, newest in rows
        ]
        output.write_json({"remote": url, "models": models})
        return
    session.table(
        ("NAME", "NEWEST", "EVENTS"), [(name, str(newest or ""), seq) for name, seq, _, newest in rows]
    )
    session.say(f"remembered {output.counted(len(rows), 'model')} of {url}")
