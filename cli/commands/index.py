"""`reg index`: the catalog of a registry, which one job publishes for all readers."""

from typing import TYPE_CHECKING, Annotated

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import Json
from onnxreg.cli.render import output
from onnxreg.cli.reports.search_report import fail, reading_steps

if TYPE_CHECKING:
    from pathlib import Path

    from onnxreg.registry.store.protocol import RegistryStore

EXAMPLES = (
    "reg index publish",
    "reg index publish origin --if-changed",
    "reg index publish s3://models/team --json",
)


def publish(
    session: Session,
    remote: Annotated[
        str | None,
        typer.Argument(
            help="A remote's name, a path or a URL; default: the registry here.", metavar="[REMOTE]"
        ),
    ] = None,
    if_changed: Annotated[
        bool,
        typer.Option(
            "--if-changed",
            help="Write nothing if no model changed since the last one.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Publish the catalog of a registry: a line for each model, and every artifact of every version whose files are there.

    From then on `reg ls --remote` and `reg query --remote` read it with one conditional request, and say how
    old it is. It is meant for one job, such as cron: a push never waits for it. Only index files that changed
    since the last catalog are read. A model that cannot be read is listed, and the exit status is 4.

    With --json: {time, models, artifacts, changed, size, damages}; changed counts models; size is the bytes of the
    file, null if none was written; damages are texts.
    """
    from onnxreg.registry.search.catalogs import publish as publish_catalog

    registry, opened = session.with_remote(remote)
    store = opened or registry.store
    with reading_steps(session) as progress:
        result = publish_catalog(store, _copy(session, store, opened is None), if_changed, progress)
    if as_json:
        output.write_json(result._asdict())
    elif result.size is None:
        session.say(f"nothing to do: the catalog of {result.time} is up to date with {store.url}")
    else:
        amount = f"{output.counted(result.models, 'model')}, {output.counted(result.artifacts, 'artifact')}"
        changes = f"{output.counted(result.changed, 'changed model')}"
        session.say(f"published the catalog of {store.url}: {amount}, {changes}, {output.size(result.size)}")
    fail(result.damages, store)


def _copy(session: Session, store: "RegistryStore", is_own: bool) -> "Path | None":
    """The place of this machine's copy of the catalog."""
    from onnxreg.registry.read.remote_reader import RemoteCopy
    from onnxreg.registry.search.catalogs import COPY

    if is_own:
        home = session.remotes().registry
        home.make_scratch()
        return home.root / "local" / COPY
    return RemoteCopy(store.registry_id, store.url).local_path(COPY)
