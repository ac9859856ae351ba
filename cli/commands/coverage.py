"""`reg coverage`: show the artifact that each device of a fleet gets."""

from onnxreg.cli.commands.resolve import UNCERTIFIED
from onnxreg.cli.options import REF, REMOTE, Session, option, read_devices
from onnxreg.cli.output import counted, size, standing, table
from onnxreg.registry.resolution import DeviceCoverage, NoAnswerError, coverage
from onnxreg.schema.core.errors import GateError, InputError
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.query.resolve import Query

EXAMPLES = ("reg coverage acme/pii-small --devices fleet.json --devices ort-ios-1.23",)

COLUMNS = ("DEVICE", "MEMBER", "VERSION", "PATH", "FORMAT", "CERTIFICATION", "SIZE", "WHY")


def command(
    session: Session,
    *,
    ref: str = REF,
    devices: list[str] = option(
        "A preset (see `reg builtin devices`) or a JSON file of one device or an array; may be repeated.",
        default=...,
    ),
    query: Query,
    remote: str | None = REMOTE,
) -> None:
    """Show the version and artifact that each device gets from `reg resolve`, for a pipeline once for each member.

    If a device gets nothing, the exit status is 8.

    With --json: {ref, stranded, devices: [{device, version, manifest, size, artifact, rejected, member?}]}; stranded
    counts devices that get nothing. The rest is as in `reg resolve --json`.
    """
    fleet = [device for word in devices for device in read_devices(word)]
    if not fleet:
        hint = "name presets (see `reg builtin devices`) or files with devices"
        raise InputError("no device is described", hint)
    coverages = coverage(session.reader(remote), Ref.parse(ref), query, fleet)
    without = {id(item.device) for item in coverages if isinstance(item.answer, NoAnswerError)}
    stranded = [device for device in fleet if id(device) in without]
    document = {"ref": ref, "stranded": len(stranded), "devices": coverages}
    session.show(document, table(COLUMNS, map(_row, coverages)))
    if stranded:
        names = ", ".join(device.name for device in stranded)
        nothing = f"{counted(len(stranded), 'device')} of {len(fleet)} get nothing of {ref}: {names}"
        hint = UNCERTIFIED if query.certified else "publish an artifact that they load, or ask less of it"
        raise GateError(nothing, hint)


def _row(covered: DeviceCoverage) -> tuple[object, ...]:
    answer, whose = covered.answer, (covered.device.name, covered.member)
    if isinstance(answer, Exception):
        return *whose, None, None, None, None, None, answer.outcome.nearest()
    artifact = answer.artifact
    facts = (answer.located.version, artifact.path, artifact.format, standing(artifact), size(answer.size))
    return *whose, *facts, None
