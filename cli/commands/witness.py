"""`reg witness`: a log of the state of every model, which others cosign, so that readers see what everybody sees."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import Json, RemoteArgument
from onnxreg.cli.render import output
from onnxreg.schema.core.errors import InputError, IntegrityError
from onnxreg.schema.core.ref import POLICY_LOG

if TYPE_CHECKING:
    from onnxreg.schema.witness.note import SignedNote, TreeHead
    from onnxreg.schema.witness.witnessed import WitnessedHead

EXAMPLES = (
    "reg witness publish --key acme-log",
    "reg witness publish origin --key acme-log --from https://witness.example/reg",
    "reg witness cosign https://models.example/reg --key w1 --log onnxreg/ID+HASH+KEY --output ./public",
    "reg witness cosign origin --key w1",
    "reg witness verify origin",
    "reg witness show origin --json",
)

Place = Annotated[
    str | None,
    typer.Argument(help="A remote's name, a path or a URL; default: the registry here.", metavar="[REMOTE]"),
]
Key = Annotated[
    str | None, typer.Option(help="One of your keys (ed25519); default: REG_SIGNING_KEY, else your only key.")
]
LogKey = Annotated[
    str | None,
    typer.Option(
        "--log", help="The verifier key of the log, as `reg witness publish` prints it.", metavar="KEY"
    ),
]


def publish(
    context: typer.Context,
    remote: Place = None,
    key: Key = None,
    places: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            help="Collect the cosignatures that a witness serves at this path or URL; may be repeated.",
        ),
    ] = None,
    accept: Annotated[
        list[str] | None,
        typer.Option(
            help="Publish this model as it is, though its log went back or is gone; may be repeated.",
            metavar="NAME",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Append the present state of every model to the witness log, and make that log if it does not exist.

    It is meant for one job that has the log's key, such as cron: a push never waits for it. A model whose
    log went back, was rewritten or is gone keeps its entry, is listed on stderr, and the exit status is 4.
    A run that was killed is continued by the next one.

    With --json: {origin, key, size, root, changed: [names], refused: [{name, why}]}; key is the verifier
    key that witnesses are given.
    """
    from onnxreg.registry.signing import signing_key
    from onnxreg.registry.witness.copies import merge_proofs
    from onnxreg.registry.witness.signers import LogPublisher, fetch_checkpoint, path_store

    session: Session = context.obj
    registry, store = session.with_remote(remote)
    publisher = LogPublisher(store or registry.store, signing_key(key))
    result = publisher.publish(accept or ())
    notes = {url: fetch_checkpoint(url, result.head.origin) for url in places or ()}
    if notes:
        merge_proofs(path_store(publisher.store), notes.values(), result.key)
    refused = [{"name": name, "why": why} for name, why in sorted(result.refused.items())]
    if as_json:
        output.write_json(
            {
                **_head_json(result.head),
                "key": str(result.key),
                "changed": list(result.changed),
                "refused": refused,
            }
        )
    else:
        session.say(_summary(result.head, f"{output.counted(len(result.changed), 'changed log')}"))
        for url, note in notes.items():
            session.say(f"collected from {url}: {', '.join(_witnesses(note))}")
        session.say(f"witnesses: reg witness cosign URL --log {result.key}")
    for item in refused:
        session.warn(f"not published: {item['name']}: {item['why']}")
    if refused:
        raise IntegrityError(
            f"{output.counted(len(refused), 'model')} of the registry went back, or cannot be read",
            "restore it from a mirror; if that is intended, publish with --accept NAME",
        )


def cosign(
    context: typer.Context,
    remote: RemoteArgument = None,
    key: Key = None,
    name: Annotated[
        str | None,
        typer.Option(help="The name of the witness; default: the name of the key. A PEM has none."),
    ] = None,
    log: LogKey = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--output",
            help="Write the cosigned checkpoint below this directory, for any web server to serve.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Sign the newest checkpoint of a registry's witness log, if it continues the last one that you signed.

    The first time, --log names the log's key. You vouch that the log only grows, not for what is in it. The
    time of your signature is how readers know that the log is fresh: run it more often than their max_age,
    also if nothing changed.

    Without --output the signature is written to the registry itself; with it, to a file that the publisher
    collects (`reg witness publish --from`). A log that went back or was rewritten is refused: exit status 4.

    With --json: {origin, size, root, witness, time, file}; witness is the verifier key for trust files.
    """
    from onnxreg.registry.signing import SIGNING_KEY, key_name, signing_key
    from onnxreg.registry.witness.copies import merge_proofs
    from onnxreg.registry.witness.signers import cosign as sign
    from onnxreg.registry.witness.signers import path_store, serve_checkpoint

    session: Session = context.obj
    store, name = session.remotes().open(remote), name or key_name(key)
    if name is None:
        raise InputError(f"the witness has no name: {SIGNING_KEY} is a PEM", "name it with --name NAME")
    signed = sign(store, name, signing_key(key), log)
    file = None if directory is None else serve_checkpoint(directory, signed.note)
    if file is None:
        merge_proofs(path_store(store), [signed.note], signed.log)
    if as_json:
        about = {"witness": str(signed.witness), "time": _time(signed.time), "file": file and str(file)}
        output.write_json({**_head_json(signed.head), **about})
        return
    session.say(_summary(signed.head, f"cosigned by {signed.witness.name}" + (f" in {file}" if file else "")))
    session.say(f'trust files name it: of = ["{signed.witness}"]')


def verify(context: typer.Context, remote: Place = None, log: LogKey = None, as_json: Json = False) -> None:
    """Read every file of the witness log, and compare the head of each model with its newest map.

    Exit status 4 if a file is missing or wrong, or if a model contradicts the map. Lines that are not
    witnessed yet are counted, and are not a fault.

    With --json: {origin, size, root, refused: [{name, why}], pending: [names]}.
    """
    from onnxreg.registry.store.protocol import innermost
    from onnxreg.registry.witness.inspection import inspect, verify_log

    session: Session = context.obj
    reader = innermost(session.reader(remote, checked=False))
    survey = verify_log(reader, log)
    head = inspect(reader).checkpoint.head
    refused = [{"name": name, "why": why} for name, why in sorted(survey.refused.items())]
    if as_json:
        output.write_json({**_head_json(head), "refused": refused, "pending": sorted(survey.changed)})
    else:
        pending = f"lines of {output.counted(len(survey.changed), 'log')} are not witnessed yet"
        outcome = pending if survey.changed else "all lines are witnessed"
        session.say(_summary(head, "every file is right" + ("" if refused else f"; {outcome}")))
    for item in refused:
        session.warn(f"{item['name']}: {item['why']}")
    if refused:
        raise IntegrityError(
            f"{output.counted(len(refused), 'model')} of the registry went back, or cannot be read"
        )


def show(context: typer.Context, remote: Place = None, as_json: Json = False) -> None:
    """Show the newest checkpoint of the witness log, and who cosigned which checkpoint when.

    Signatures are not checked here: a reader's trust file names the witnesses that it believes.

    With --json: {origin, size, root, models, cosigned: [{size, root, signatures: [{name, keyid, time}]}]}.
    """
    from onnxreg.registry.witness.inspection import inspect

    session: Session = context.obj
    status = inspect(session.reader(remote, checked=False))
    cosigned = [_proof_json(proof) for proof in status.proofs]
    models = sum(entry.name != POLICY_LOG for entry in status.heads)
    if as_json:
        output.write_json({**_head_json(status.checkpoint.head), "models": models, "cosigned": cosigned})
        return
    session.say(_summary(status.checkpoint.head, output.counted(models, "model")))
    rows = [
        (proof["size"], signature["name"], signature["time"])
        for proof in cosigned
        for signature in proof["signatures"]
    ]
    session.table(("SIZE", "WITNESS", "TIME"), rows)
    if not rows:
        session.say("no witness has cosigned it yet: reg witness cosign")


def _proof_json(proof: "WitnessedHead") -> dict[str, Any]:
    signatures = [
        {"name": signature.name, "keyid": signature.keyid.hex(), "time": _time(signature.time)}
        for signature in sorted(proof.note.signatures)
        if signature.name != proof.head.origin
    ]
    return {"size": proof.head.size, "root": proof.head.root.hex(), "signatures": signatures}


def _witnesses(note: "SignedNote") -> list[str]:
    """The names under which witnesses signed a checkpoint."""
    log = note.text.partition("\n")[0]
    return sorted({signature.name for signature in note.signatures} - {log})


def _head_json(head: "TreeHead") -> dict[str, Any]:
    return {"origin": head.origin, "size": head.size, "root": head.root.hex()}


def _summary(head: "TreeHead", more: str) -> str:
    return f"{head.origin} has size {head.size}, root {head.root.hex()[:12]}: {more}"


def _time(seconds: int) -> str:
    """A claimed time, RFC 3339; as a number if no calendar has it."""
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return str(seconds)
