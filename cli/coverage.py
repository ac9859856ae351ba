"""`reg coverage`: which artifact each device of a fleet gets."""

from typing import Annotated

import typer

from onnxreg.cli import asking, output
from onnxreg.cli.fleet import read_devices
from onnxreg.cli.options import Json, RefArgument, RemoteOption
from onnxreg.cli.session import Session
from onnxreg.registry.coverage import Covered, coverage
from onnxreg.schema.errors import GateError, InputError
from onnxreg.schema.query import Query
from onnxreg.schema.ref import Ref

EXAMPLES = (
    "reg coverage acme/pii-small --devices fleet.json --devices ort-ios-1.23",
    "reg coverage acme/pii-small:1.4.0 --devices fleet.json --certified --json",
)


@asking.asks
def command(
    context: typer.Context,
    ref: RefArgument,
    devices: Annotated[
        list[str],
        typer.Option(
            help="A preset (see `reg devices`) or a JSON file of one device or an array; may be repeated."
        ),
    ],
    asked: Query = asking.ANYTHING,
    remote: RemoteOption = None,
    as_json: Json = False,
) -> None:
    """Say which version and artifact each device gets, as `reg resolve` would answer it.

    A device that gets nothing is exit status 8, so that this can stand before a promotion.

    With --json: {ref, stranded, devices: [{device, version, manifest, size, artifact, rejected}]}; stranded is a count,
    the rest as in `reg resolve --json`, null for a device that gets nothing.
    """
    session: Session = context.obj
    fleet = [device for place in devices for device in read_devices(place)]
    if not fleet:
        raise InputError("no device is described", "name presets (see `reg devices`) or files with devices")
    found = coverage(session.place(remote), Ref.parse(ref), asked, fleet)
    stranded = [each for each in found if each.stranded]
    if as_json:
        covered = [each.to_json() for each in found]
        output.write_json({"ref": ref, "stranded": len(stranded), "devices": covered})
    else:
        session.table(
            ("DEVICE", "VERSION", "PATH", "FORMAT", "CERTIFICATION", "SIZE", "WHY"), map(_row, found)
        )
    if stranded:
        names = ", ".join(each.device.name for each in stranded)
        raise GateError(
            f"{output.counted(len(stranded), 'device')} of {len(found)} get nothing of {ref}: {names}",
            "publish an artifact that they load, or ask less of it",
        )


def _row(covered: Covered) -> tuple[str, ...]:
    answer = covered.answer
    if isinstance(answer, Exception):
        return covered.device.name, "", "", "", "", "", answer.hint
    artifact = answer.artifact
    return (
        covered.device.name,
        str(answer.found.version),
        artifact.path,
        artifact.format,
        artifact.state,
        output.size(answer.size),
        "",
    )
