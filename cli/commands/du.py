"""`reg du`: where the space goes."""

from typing import Annotated

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.completion import complete_name
from onnxreg.cli.options.shared import Json, RemoteOption
from onnxreg.cli.render import output

EXAMPLES = ("reg du", "reg du acme/pii-small acme/pii-base", "reg du --remote origin --json")


def command(
    session: Session,
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Only these models.", metavar="[NAME]...", autocompletion=complete_name),
    ] = None,
    remote: RemoteOption = None,
    as_json: Json = False,
) -> None:
    """Show the space of each model: its own, and shared with other models; the largest own space first.

    UNIQUE is the space that would be free without this model; unreferenced is what `reg gc` frees now.

    With --json: {models: [{name, versions, blobs, bytes, unique, shared}], unreferenced: {blobs, bytes},
    total: {blobs, bytes}}; versions counts those whose files are here; unreferenced and total are for the
    whole registry.
    """
    from onnxreg.registry.maintain import space

    registry, store = session.with_remote(remote)
    if store is not None:
        registry.check_logs(remote=store)
    usage = space.usage(store or registry.store, names or ())
    if as_json:
        output.write_json(usage.to_json())
        return
    rows = [
        (model.name, model.versions, *map(output.size, (model.unique, model.shared, model.size)))
        for model in usage.models
    ]
    session.table(("NAME", "VERSIONS", "UNIQUE", "SHARED", "SIZE"), rows)
    for label, part in (("unreferenced", usage.unreferenced), ("all", usage.total)):
        session.say(f"{label}: {output.counted(part['blobs'], 'blob')}, {output.size(part['bytes'])}")
