"""`reg verify`: reading everything again."""

from typing import Annotated

import typer

from onnxreg.cli import output
from onnxreg.cli.options import Json, complete_name
from onnxreg.cli.session import Session
from onnxreg.schema.errors import IntegrityError

EXAMPLES = ("reg verify", "reg verify acme/pii-small:1.2.0", "reg verify --json")


def command(
    context: typer.Context,
    ref: Annotated[
        str | None,
        typer.Argument(help="Only this model or version.", metavar="[REF]", autocompletion=complete_name),
    ] = None,
    as_json: Json = False,
) -> None:
    """Read every byte and every log line again, and list all damage. Damage is exit status 4.

    With --json: {ok, models, versions, blobs, bytes, damages: [{kind, name, detail, digest?}]}.
    """
    session: Session = context.obj
    registry = session.open()
    with session.progress("verifying", as_json) as progress:
        report = registry.verify(ref, progress)
    if as_json:
        output.write_json(report.to_json())
    else:
        rows = [(damage.kind, damage.name, damage.detail) for damage in report.damages]
        session.table(("DAMAGE", "WHERE", "WHAT"), rows)
        counts = ((report.models, "model"), (report.versions, "version"), (report.blobs, "blob"))
        read = ", ".join(output.counted(count, noun) for count, noun in counts)
        session.say(
            f"read {read}, {output.size(report.size)}: {'damaged' if report.damages else 'all intact'}"
        )
    if report.damages:
        raise IntegrityError(
            f"{output.counted(len(report.damages), 'damage')} in {registry.store.url}",
            "fetch good copies: push the version again from a registry that has it",
        )
