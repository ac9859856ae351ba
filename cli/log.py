"""`reg log`: a model's history."""

from typing import Any

import typer

from onnxreg.cli import output
from onnxreg.cli.options import Json, MaxAge, NameArgument, Offline, RemoteOption
from onnxreg.cli.session import Session
from onnxreg.schema.events import LogLine

EXAMPLES = (
    "reg log acme/pii-small",
    "reg log acme/pii-small --json",
    "reg log acme/pii-small --remote origin --offline",
)


def command(
    context: typer.Context,
    name: NameArgument,
    remote: RemoteOption = None,
    offline: Offline = False,
    max_age: MaxAge = None,
    as_json: Json = False,
) -> None:
    """Show every event of a model, oldest first; the chain is verified. Actors are shown as they claimed to be.

    With --json: {name, registry, head, lines: [{seq, prev, digest, event, via?}]}.
    """
    from onnxreg.registry.facade import read_log

    session: Session = context.obj
    place = session.limited(max_age).place(remote, offline)
    lines = read_log(place, name)
    if as_json:
        head = str(lines[-1].digest)
        value = {
            "name": name,
            "registry": place.registry_id,
            "head": head,
            "lines": [_json(line) for line in lines],
        }
        output.write_json(value)
        return
    session.table(("SEQ", "TIME", "EVENT", "WHAT", "ACTOR", "REASON"), [_row(line) for line in lines])


def _json(line: LogLine) -> dict[str, Any]:
    value = {
        "seq": line.seq,
        "prev": str(line.prev),
        "digest": str(line.digest),
        "event": line.event.to_json(),
    }
    if line.via is not None:
        value["via"] = {"registry": line.via.registry, "seq": line.via.seq, "head": str(line.via.head)}
    return value


def _row(line: LogLine) -> tuple[object, ...]:
    event = line.event.to_json()
    what = [str(event[key]) for key in ("tag", "version") if key in event]
    if "manifest" in event:
        what.append(event["manifest"][7:19])
    if event["kind"] == "hold":
        what.append(", ".join(event.get("paths", ["everything"])))
    return (
        line.seq,
        event["time"],
        event["kind"],
        " ".join(what),
        event.get("actor", ""),
        event.get("reason", ""),
    )
