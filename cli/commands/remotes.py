"""`reg remote` and `reg index`: name remotes, publish a catalog, and store the index files of a remote."""

from onnxreg.cli.options import REMOTE, Session, argument, option
from onnxreg.cli.output import counted, fields, size, table
from onnxreg.cli.search_report import fail, reading_steps

EXAMPLES = (
    "reg remote add origin /mnt/share/models",
    "reg remote list",
    "reg remote remove origin",
    "reg index publish",
    "reg index fetch --remote origin",
    "reg index fetch acme/pii-small 'lab/*' --remote s3://models/prod",
)


NAME = argument("The remote's name.", "NAME")


def remote_add(session: Session, name: str = NAME, url: str = argument("A path or URL.", "PATH|URL")) -> None:
    """Give a registry elsewhere a name. The name is yours: other users of this registry do not see it."""
    session.open(create=True).remotes.add(name, url)
    session.say(f"remote {name} added")


def remote_list(session: Session) -> None:
    """List the remotes.

    With --json: {remotes: [{name, url}]}.
    """
    remotes = sorted(session.remotes().urls.items())
    session.show(
        {"remotes": [{"name": name, "url": url} for name, url in remotes]},
        table(("NAME", "URL"), remotes),
        [] if remotes else "there are no remotes: reg remote add NAME PATH|URL names a registry",
    )


def remote_remove(session: Session, name: str = NAME) -> None:
    """Forget a remote's name. Nothing at the remote changes."""
    session.open().remotes.remove(name)
    session.say(f"remote {name} removed")


def index_publish(
    session: Session,
    remote: str | None = option("The remote's name, a path or a URL; default: the local registry."),
) -> None:
    """Publish the catalog of a registry: all models, and the artifacts of versions whose files it has.

    Then `reg ls --remote` and `reg query --remote` read the catalog with one request, and print its age. Publish from
    one job only, such as cron. A model that cannot be read is exit status 4.

    With --json: {time, models, artifacts, size, damages}; size is the bytes of the file, damages are texts.
    """
    from onnxreg.registry.remotes import RemoteCopy
    from onnxreg.registry.search.catalogs import COPY
    from onnxreg.registry.search.catalogs import publish as publish_catalog

    registry, opened = session.with_remote(remote)
    store, home = opened or registry.store, session.remotes().registry
    if opened is None:
        home.store.make_scratch()
    at_home, elsewhere = home.root / "local" / COPY, RemoteCopy(store.registry_id, store.url)
    copy = at_home if opened is None else elsewhere.local_path(COPY)
    with reading_steps(session) as progress:
        result = publish_catalog(store, copy, progress)
    total = f"{counted(result.models, 'model')}, {counted(result.artifacts, 'artifact')}, {size(result.size)}"
    session.show(result._asdict(), f"published the catalog of {store.url}: {total}")
    fail(result.damages, store)


def index_fetch(
    session: Session,
    names: list[str] | None = argument("Models, or patterns such as 'acme/*'; default: all.", "[NAME]..."),
    remote: str | None = REMOTE,
) -> None:
    """Store the index files and logs of a remote's models, and the log of its policies, without artifacts.

    Only changed files are fetched. `ls`, `log` and `resolve` then answer with --offline, and print the age of the
    answer. A pull also stores the files of its model. `resolve` of an older version, or of a family's member, needs the
    remote (exit status 6).

    With --json: {remote, models: [{name, seq, head, newest}]}; newest may be null.
    """
    registry = session.open(create=True)
    states = registry.fetch_index(names or (), remote)
    url = registry.remotes.url_of(remote)
    models = [fields(state, "name seq head") | {"newest": state.newest_release()} for state in states]
    rows = [(model["name"], model["newest"], model["seq"]) for model in models]
    session.show(
        {"remote": url, "models": models},
        table(("NAME", "NEWEST", "EVENTS"), rows),
        f"remembered {counted(len(rows), 'model')} of {url}",
    )
