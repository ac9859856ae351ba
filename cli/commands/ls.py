"""`reg ls`: list the models of a registry, the models with a kind of artifact, or the versions of one model."""

from collections.abc import Collection
from itertools import groupby
from typing import TYPE_CHECKING, Any

from onnxreg.cli.options import FORMATS, MAX_AGE, OFFLINE, PRECISION, REMOTE, Session, argument, flag
from onnxreg.cli.output import fields, size, standing, table
from onnxreg.cli.search_report import fail, read_catalog, tell_time
from onnxreg.registry.log.log import FINISH, PATTERN, Log, named_copy, open_log
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import RegistryReader
from onnxreg.schema.core.ref import check_name

if TYPE_CHECKING:
    from onnxreg.registry.search.catalog import Catalog

EXAMPLES = (
    "reg ls",
    "reg ls acme/pii-small",
    "reg ls 'acme/*' --format onnx-int8 --certified",
    "reg ls acme/pii-small --remote origin",
    "reg --registry /srv/models ls --json",
)
ARTIFACT_KEYS = "format precision path digest size download_size state"


def command(
    session: Session,
    name: str | None = argument(
        "List the versions of this model, or the models that a pattern such as 'acme/*' names.",
        "[NAME]",
        models=True,
    ),
    formats: list[str] | None = FORMATS,
    precision: str | None = PRECISION,
    certified: bool = flag("Only certified artifacts."),
    remote: str | None = REMOTE,
    offline: bool = OFFLINE,
    max_age: str | None = MAX_AGE,
) -> None:
    """List the models of the registry, or the versions of one model, newest first.

    With --format, --precision or --certified, list the matching artifacts of each model, from the newest release that
    has any. The list of a remote comes from its catalog, if somebody publishes one (reg index publish).

    With --json: {models: [{name, versions, newest, channels}], snapshot?}; versions is a count, newest may be null,
    snapshot is the time of the catalog that answered. With --format, --precision or --certified each model also has
    {version, manifest, artifacts: [{format, precision, path, digest, size, download_size, state}]}.

    For one model: {name, registry, versions: [{version, manifest, size?, state, yanked, held, states?, attested?,
    channels}]}; state is empty, yanked, refused (if an artifact is refused), pinned, partial, expired or purged; held
    has the paths of the artifacts that this registry has, and is null if it has all; size is the bytes of all held
    files; states has the artifacts' states by path, with later refusals. If the index file has no sizes and states,
    these two keys are missing, and state is refused only if a later evaluation of this version refused an artifact.
    """
    session = session.with_max_age(max_age)
    reader = session.reader(remote, offline, checked=False)
    pattern = "*" if name is None else name
    is_one = name is not None and not PATTERN & set(name)
    is_search = bool(formats or precision or certified)
    log = open_log(reader, check_name(pattern)) if is_one else None
    if log is not None and not is_search:
        _versions(session, log)
        return
    catalog = read_catalog(session, reader, pattern, is_search, 0 if offline else session.max_age)
    damages = catalog.damages(pattern, is_search)
    time = tell_time(session, catalog.time, reader)
    if is_search:
        document, lines = _matches(catalog, pattern, formats or (), precision, certified)
        none = "no release has such an artifact"
    else:
        models = [model.to_json() for model in catalog.readable(pattern)]
        keys = ("name", "newest", "versions")
        rows = [(*map(model.get, keys), list(map("=".join, model["channels"].items()))) for model in models]
        document, lines = models, list(table(("NAME", "NEWEST", "VERSIONS", "CHANNELS"), rows))
        none = _none(reader) if pattern == "*" else f"no model of {reader.url} is called {pattern}"
    session.show({"models": document, **time}, lines if document or damages else none)
    fail(damages, reader)


def _none(reader: RegistryReader) -> str:
    is_own = isinstance(reader, DirectoryRegistry)
    copy = f", {named_copy(reader)}," if reader.is_mirror else ""
    how = FINISH if copy else "reg export and reg add make some" if is_own else "reg push brings some"
    return f"{reader.url}{copy} holds no models yet: {how}"


def _matches(
    catalog: "Catalog", pattern: str, formats: Collection[str], precision: str | None, certified: bool
) -> tuple[list[dict[str, Any]], list[str]]:
    """For each model, find the newest release with matching artifacts. Return JSON documents, and rows of a table."""
    fitting = (
        artifact
        for artifact in catalog.query(None, pattern)
        if artifact.held
        and not (artifact.yanked or artifact.prerelease)
        and (not formats or artifact.format in formats)
        and precision in (None, artifact.precision)
        and (artifact.certified or not certified)
    )
    newest = {}
    for (name, _), artifacts in groupby(fitting, lambda artifact: (artifact.name, artifact.version)):
        newest[name] = list(artifacts)
    documents = [
        {**catalog.models[name].to_json(), **fields(artifacts[0], "version manifest")}
        | {"artifacts": [fields(item, ARTIFACT_KEYS) for item in artifacts]}
        for name, artifacts in newest.items()
    ]
    rows = [
        (*fields(one, "name version path format precision").values(), size(one.download_size), standing(one))
        for artifacts in newest.values()
        for one in artifacts
    ]
    header = ("NAME", "VERSION", "ARTIFACT", "FORMAT", "PRECISION", "DOWNLOAD", "CERTIFICATION")
    return documents, list(table(header, rows))


def _versions(session: Session, log: Log) -> None:
    from onnxreg.registry.search.catalog import versions_json

    versions = versions_json(log)
    rows = []
    for item in versions["versions"]:
        state, states = item["state"], item.get("states", {})
        if state == "refused" and 0 < (refused := list(states.values()).count("refused")) < len(states):
            state = f"{refused} of {len(states)} refused"
        facts = (item["version"], item["manifest"][7:19], size(item["size"]) if "size" in item else None)
        rows.append((*facts, item["channels"], state, item["held"] or None))
    session.show(versions, table(("VERSION", "MANIFEST", "SIZE", "CHANNELS", "STATE", "HELD"), rows))
