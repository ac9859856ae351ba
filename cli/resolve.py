"""`reg resolve`: which file an app should load."""

from collections.abc import Callable, Sequence

from onnxreg.cli import output
from onnxreg.cli.session import Session
from onnxreg.registry import lookup
from onnxreg.schema.query import Query
from onnxreg.schema.ref import Ref

EXAMPLES = (
    "reg resolve acme/pii-small",
    "reg resolve acme/pii-small:stable --format ort-android --format onnx-int8",
    "reg resolve acme/pii-small --precision int8 --remote origin --json",
)


def run(
    session: Session,
    ref: str,
    formats: Sequence[str] = (),
    precision: str | None = None,
    remote: str | None = None,
    as_json: bool = False,
) -> None:
    """Both lanes end here; for the shape of the JSON see `command`."""
    resolution = lookup.resolve(session.place(remote), Ref.parse(ref), Query(tuple(formats), precision))
    if as_json:
        output.write_json(resolution.to_json())
        return
    artifact = resolution.artifact
    session.say(
        f"{resolution.found.ref}  {artifact.format}  {artifact.precision}  {output.paint(artifact.state)}",
        f"manifest  {resolution.found.entry.manifest}",
        f"url       {resolution.files[0][1]}",
        "",
    )
    session.table(
        ("ROLE", "PATH", "SIZE"),
        [(file.role, file.path, output.size(file.size)) for file, _ in resolution.files],
    )
    rejected = [(rejection.artifact, rejection.code, rejection.detail) for rejection in resolution.rejected]
    if rejected:
        session.say("", "not chosen:")
        session.table(("PATH", "CODE", "WHY"), rejected)


def command() -> Callable[..., None]:
    """The typer declaration; made here, since the fast lane does without typer."""
    from typing import Annotated

    import typer

    from onnxreg.cli.options import Json, RefArgument, RemoteOption

    def resolve(
        context: typer.Context,
        ref: RefArgument,
        formats: Annotated[
            list[str] | None,
            typer.Option("--format", help="An accepted format, the preferred one first; may be repeated."),
        ] = None,
        precision: Annotated[str | None, typer.Option(help="The precision it must have.")] = None,
        remote: RemoteOption = None,
        as_json: Json = False,
    ) -> None:
        """Pick one artifact of a version, with the files it needs.

        Certified artifacts come first, then the preferred formats, then the smallest. Nothing that answers is exit
        status 3, with the reason for each artifact. Where the registry holds only some artifacts of the version, the
        others are rejected with the code not-held.

        With --json: {name, version, manifest, artifact: {format, precision, path, digest, size, state}, files:
        [{role, path, digest, size, url}], rejected: [{artifact, code, detail}]}; sizes are bytes.
        """
        run(context.obj, ref, formats or (), precision, remote, as_json)

    return resolve
