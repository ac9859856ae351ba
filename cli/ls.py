"""`reg ls`: the models of a registry, or the versions of one model."""

from collections.abc import Callable
from typing import Any

from onnxreg.cli import output
from onnxreg.cli.session import Session
from onnxreg.registry import lookup
from onnxreg.registry.storage import Remote
from onnxreg.schema.errors import IntegrityError
from onnxreg.schema.ref import check_name
from onnxreg.schema.state import State
from onnxreg.schema.summary import VersionSummary
from onnxreg.schema.version import Version

EXAMPLES = ("reg ls", "reg ls acme/pii-small", "reg --registry /srv/models ls --json")


def run(session: Session, name: str | None = None, as_json: bool = False) -> None:
    """Both lanes end here; for the shape of the JSON see `command`."""
    place = session.place()
    if name is None:
        _models(session, place, as_json)
    else:
        _versions(session, place, lookup.read_state(place, check_name(name)), as_json)


def _models(session: Session, place: Remote, as_json: bool) -> None:
    models: list[dict[str, Any]] = []
    damages: list[IntegrityError] = []
    for name in place.names():
        try:
            models.append(_model(place, lookup.read_state(place, name)))
        except IntegrityError as damage:
            damages.append(damage)
    if as_json:
        output.write_json({"models": models})
    else:
        rows = [
            (model["name"], model["newest"] or "", model["versions"], _channels(model["channels"]))
            for model in models
        ]
        session.table(("NAME", "NEWEST", "VERSIONS", "CHANNELS"), rows)
        if not rows and not damages:
            session.say(f"{place.url} holds no models yet: reg export and reg add make some")
    if damages:
        what = "; ".join(damage.message for damage in damages)
        raise IntegrityError(what, "the other models are listed; run reg verify to see the extent")


def _model(place: Remote, state: State) -> dict[str, Any]:
    newest = state.newest_release()
    return {
        "name": state.name,
        "versions": len(lookup.all_versions(place, state)),
        "newest": None if newest is None else str(newest),
        "channels": {tag: str(channel.version) for tag, channel in sorted(state.channels.items())},
    }


def _channels(channels: dict[str, str]) -> str:
    return ", ".join(f"{tag}={version}" for tag, version in channels.items())


def _versions(session: Session, place: Remote, state: State, as_json: bool) -> None:
    versions = [
        _version(state, version, str(entry.manifest), entry.yanked)
        for version, entry in sorted(lookup.all_versions(place, state).items(), reverse=True)
    ]
    if as_json:
        output.write_json({"name": state.name, "registry": state.registry, "versions": versions})
        return
    session.table(
        ("VERSION", "MANIFEST", "SIZE", "CHANNELS", "STATE"),
        [
            (
                item["version"],
                item["manifest"][7:19],
                output.size(item["size"]) if "size" in item else "",
                ", ".join(item["channels"]),
                "yanked" if item["yanked"] else "",
            )
            for item in versions
        ],
    )


def _version(state: State, version: Version, manifest: str, yanked: bool) -> dict[str, Any]:
    summary = lookup.held_summary(state, version)
    return {
        "version": str(version),
        "manifest": manifest,
        **({} if summary is None else {"size": _total(summary)}),
        "yanked": yanked,
        "channels": sorted(tag for tag, channel in state.channels.items() if channel.version == version),
    }


def _total(summary: VersionSummary) -> int:
    """Bytes of all files of a version, those that are equal counted once."""
    sizes = {entry.digest: entry.size for entry in summary.files}
    for artifact in summary.artifacts:
        sizes |= {artifact.digest: artifact.size} | {entry.digest: entry.size for entry in artifact.files}
    return sum(sizes.values())


def command() -> Callable[..., None]:
    """The typer declaration; made here, since the fast lane does without typer."""
    from typing import Annotated

    import typer

    from onnxreg.cli.options import Json, complete_name

    def ls(
        context: typer.Context,
        name: Annotated[
            str | None, typer.Argument(help="List the versions of this model.", autocompletion=complete_name)
        ] = None,
        as_json: Json = False,
    ) -> None:
        """List the models of the registry, or the versions of one of them, newest first.

        With --json: {models: [{name, versions, newest, channels}]}, where versions is a count and newest may be
        null; for one model {name, registry, versions: [{version, manifest, size?, yanked, channels}]}. The size is
        that of all files in bytes, where the index file knows it.
        """
        run(context.obj, name, as_json)

    return ls
