"""`reg ls`: the models of a registry, those that have a kind of artifact, or the versions of one model."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxreg.cli import hints
from onnxreg.cli.context import Session
from onnxreg.cli.options.completion import complete_name
from onnxreg.cli.options.shared import Fresh, Json, MaxAge, Offline, Precision, RemoteOption
from onnxreg.cli.render import output
from onnxreg.cli.reports.search_report import fail, index, search_of, tell_time, warn_unfinished
from onnxreg.registry.log import lookup
from onnxreg.registry.search import listing
from onnxreg.registry.store.protocol import LocalStore, RegistryReader
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import check_name

if TYPE_CHECKING:
    from onnxreg.registry.search.remote_search import RemoteSearch
    from onnxreg.registry.search.search_index import ArtifactKind, Match

EXAMPLES = (
    "reg ls",
    "reg ls acme/pii-small",
    "reg ls 'acme/*' --format onnx-int8 --certified",
    "reg ls acme/pii-small --remote origin",
    "reg --registry /srv/models ls --json",
)
MAX_UNINDEXED_MODELS = 50
"""Models whose index files are read one by one; for more of them the search index is opened."""


def command(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="List the versions of this model, or the models that a pattern such as 'acme/*' names.",
            autocompletion=complete_name,
        ),
    ] = None,
    formats: Annotated[
        list[str] | None,
        typer.Option("--format", help="Only models with an artifact of this format; may be repeated."),
    ] = None,
    precision: Precision = None,
    certified: Annotated[bool, typer.Option("--certified", help="Only certified artifacts.")] = False,
    remote: RemoteOption = None,
    offline: Offline = False,
    max_age: MaxAge = None,
    fresh: Fresh = False,
    as_json: Json = False,
) -> None:
    """List the models of the registry, or the versions of one of them, newest first.

    With --format, --precision or --certified: the newest release of each model that has such an artifact,
    with these artifacts. Only the newest four releases of a model and the versions of its channels are
    considered.

    The list of a remote comes from its snapshot, if somebody publishes one (reg index publish).

    With --json: {models: [{name, versions, newest, channels}], snapshot?}, where snapshot is the time of the
    snapshot that answered, versions is a count and newest may be
    null; for one model {name, registry, versions: [{version, manifest, size?, state, yanked, held, states?,
    attested?, channels}]}; state is empty, yanked, refused (an artifact is), pinned, partial, expired or
    purged; held has the paths of the artifacts that are here, null if all are. size is the bytes of all
    held files, and states has the artifacts' states by path, including later refusals; both are present if
    the index file has them. With --format, --precision or --certified each model also has {version,
    manifest, artifacts: [{format, precision, path, digest, size, download_size, state}]}.
    """
    session: Session = context.obj.limited(max_age)
    reader = session.reader(remote, offline, checked=False)
    one = name is not None and not lookup.PATTERN & set(name)
    if formats or precision or certified:
        if not isinstance(reader, LocalStore):
            raise InputError("artifacts are searched in a registry on this machine", "leave --remote away")
        if name is not None and one:
            lookup.read_state(reader, check_name(name))
        from onnxreg.registry.search.search_index import ArtifactKind

        kind = ArtifactKind(tuple(formats or ()), precision, certified)
        _matches(session, reader, name or "*", kind)
    elif name is not None and one:
        _versions(session, reader, check_name(name))
    else:
        search = None if remote is None or offline else search_of(session, reader, fresh)
        _models(session, reader, name or "*", search)


def _models(session: Session, reader: RegistryReader, pattern: str, search: "RemoteSearch | None") -> None:
    from onnxreg.registry.search import scan

    origin: dict[str, str] = {}
    if search is not None:
        models, damages = search.models(pattern)
        origin = tell_time(session, search, reader)
    elif isinstance(reader, LocalStore) and scan.has_more(reader.root, MAX_UNINDEXED_MODELS):
        with index(reader) as search_index:
            models, damages = search_index.models(pattern), search_index.damages(pattern)
    else:
        names = (name for name in reader.names() if fnmatchcase(name, pattern))
        models, damages = listing.read_models(reader, names)
    if session.as_json:
        output.write_json({"models": [model.to_json() for model in models], **origin})
    else:
        rows = [
            (model.name, model.newest or "", model.versions, _channels(model.channels)) for model in models
        ]
        session.table(("NAME", "NEWEST", "VERSIONS", "CHANNELS"), rows)
        warn_unfinished(session, reader)
        if not rows and not damages:
            session.say(_none(reader) if pattern == "*" else f"no model of {reader.url} is called {pattern}")
    fail(damages, reader)


def _none(reader: RegistryReader) -> str:
    if reader.is_mirror:
        return f"{reader.url}, {lookup.named_copy(reader)}, holds no models yet: {hints.text(lookup.FINISH)}"
    how = "reg export and reg add make some" if isinstance(reader, LocalStore) else "reg push brings some"
    return f"{reader.url} holds no models yet: {how}"


def _channels(channels: dict[str, str]) -> str:
    return ", ".join(f"{tag}={version}" for tag, version in channels.items())


def _matches(session: Session, reader: RegistryReader, pattern: str, kind: "ArtifactKind") -> None:
    with index(reader) as search:
        matches, damages = search.matches(kind, pattern), search.damages(pattern)
    if session.as_json:
        output.write_json({"models": [_match(match) for match in matches]})
    else:
        session.table(
            ("NAME", "VERSION", "ARTIFACT", "FORMAT", "PRECISION", "SIZE", "CERTIFICATION"),
            [
                (match.model.name, match.version, a.path, a.format, a.precision, output.size(a.size), a.state)
                for match in matches
                for a in match.artifacts
            ],
        )
        if not matches and not damages:
            session.say("no newer release has such an artifact")
        warn_unfinished(session, reader)
    fail(damages, reader)


def _match(match: "Match") -> dict[str, Any]:
    return {
        **match.model.to_json(),
        "version": match.version,
        "manifest": match.manifest,
        "artifacts": [artifact._asdict() for artifact in match.artifacts],
    }


def _versions(session: Session, reader: RegistryReader, name: str) -> None:
    versions = listing.versions_json(*lookup.read_versions(reader, name))
    if session.as_json:
        output.write_json(versions)
        return
    session.table(
        ("VERSION", "MANIFEST", "SIZE", "CHANNELS", "STATE", "HELD"),
        [
            (
                item["version"],
                item["manifest"][7:19],
                output.size(item["size"]) if "size" in item else "",
                ", ".join(item["channels"]),
                _worded(item["state"], item.get("states", {})),
                ", ".join(item["held"] or ()),
            )
            for item in versions["versions"]
        ],
    )


def _worded(state: str, states: Mapping[str, str]) -> str:
    """The state of a version; if only some of its artifacts are refused, how many."""
    refused = sum(word == "refused" for word in states.values())
    return f"{refused} of {len(states)} refused" if state == "refused" and refused < len(states) else state
