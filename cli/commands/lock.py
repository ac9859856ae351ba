"""`reg lock`: the artifacts that an app's build takes, written down by their digests."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import join
from typing import Any

from onnxreg.cli import output
from onnxreg.cli.context import Session
from onnxreg.cli.options import (
    ANYTHING,
    DEVICE,
    READ_REMOTE,
    argument,
    complete_ref,
    flag,
    option,
    read_one_device,
    takes_query,
)
from onnxreg.cli.output import table, write_file
from onnxreg.registry import lockfile
from onnxreg.registry.log.lookup import open_log
from onnxreg.schema.core.errors import GateError, InputError
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.inputs.lockfile import FILENAME, LockChange, LockedArtifact, Lockfile
from onnxreg.schema.log.state import Rollout
from onnxreg.schema.query.requirements import Query
from onnxreg.schema.query.resolve import ResolveRequest

EXAMPLES = (
    "reg lock acme/pii-small --device ort-android-1.23 --remote origin",
    "reg lock acme/pii-small:stable --format onnx-int8 --output app/onnxreg.lock",
    "reg lock --remote origin",
    "reg lock --update acme/pii-small --remote origin",
    "reg lock --check --remote origin",
)


@takes_query
def command(
    session: Session,
    refs: list[str] | None = argument(
        "NAME[:TAG][@sha256:...]: lock these models; by default, resolve those in the file again.",
        "[REF]...",
        complete_ref,
    ),
    query: Query = ANYTHING,
    device: str | None = DEVICE,
    remote: str | None = READ_REMOTE,
    path: Path = option("The lock file.", "--output", default=Path(FILENAME)),
    update: list[str] | None = option("Resolve only this model again; may be repeated.", metavar="NAME"),
    check: bool = flag("Write nothing; exit status 8 if the file would change."),
) -> None:
    """Resolve models and write down the matching artifacts, file by file, for `reg pull --locked`.

    With REF the options are those of `reg resolve`; the question is stored in the file, beside the other
    models there. Without REF the questions in the file are answered again. The same answers give the same
    bytes.

    With --json: {output, changed, models, changes: [{name, before, after}]}; models is that of the file,
    before and after are its entries or null. If a locked channel is being rolled out, also rollouts: [{ref,
    to, manifest, percent, salt, seq, where?}]; the lock has the release before.
    """
    target_device = read_one_device(device)
    if not refs and (query.to_json() or target_device):
        raise InputError(
            "the options say what a REF must be, and none is named", "name a REF, or leave them out"
        )
    if refs and update:
        raise InputError(
            "REF and --update contradict each other", "lock a REF with options, or --update NAME"
        )
    before = Lockfile.of([]) if refs and not path.exists() else lockfile.read(path)
    reader = session.reader(remote)
    if refs:
        requests = [ResolveRequest(Ref.parse(ref), query, target_device) for ref in _each_once(refs)]
    else:
        requests = lockfile.recorded_requests(before, update or ())
    locked = lockfile.lock(reader, requests, session.warn)
    lock = before.with_entries(locked)
    changes = lock.changes(before)
    if not check:
        write_file(path, lock.encode())
    rollouts = {
        str(ref): rollout
        for ref in (entry.request.ref for entry in locked)
        if ref.tag is not None and (rollout := open_log(reader, ref.name).state.rollouts.get(ref.tag))
    }
    state = "" if check else f"written to {path}"
    moved = [entry for entry in locked if lock.is_moved(entry)]
    session.show(
        _as_json(path, lock, changes) | _rollouts(rollouts),
        table(("MODEL", "VERSION", "PATH", "FORMAT", "SIZE", "MANIFEST"), map(_row, lock.models.values())),
        "",
        map(str, changes),
        (state or []) if changes else f"nothing changed: {path} is what the registry answers",
        [f"{item.name}: registry {item.registry[:12]}... has the locked manifest too" for item in moved],
        [f"{ref}: {rollout}; the lock has the release before" for ref, rollout in rollouts.items()],
    )
    if check and changes:
        hint = "run the same without --check" if refs else _again(session, path, remote, update or ())
        raise GateError(f"{path} is not what the registry answers now", hint)


def _again(session: Session, path: Path, remote: str | None, update: Sequence[str]) -> str:
    """The command that writes what a check of the whole file missed."""
    words = ["reg", *(("--registry", str(session.registry)) if session.registry else ()), "lock"]
    for word, value in (("--remote", remote), *(("--update", name) for name in update)):
        words += [word, value] if value else []
    return join([*words, *(("--output", str(path)) if path != Path(FILENAME) else ())])


def _each_once(refs: list[str]) -> list[str]:
    names = [Ref.parse(ref).name for ref in refs]
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"{name} is named twice: a lock holds one artifact of a model", "use another --output"
            )
    return refs


def _rollouts(rollouts: Mapping[str, Rollout]) -> dict[str, Any]:
    listed = [{"ref": ref, **rollout.to_json()} for ref, rollout in rollouts.items()]
    return {"rollouts": listed} if listed else {}


def _row(entry: LockedArtifact) -> tuple[str, ...]:
    version, size = str(entry.version), output.size(entry.size)
    return entry.name, version, entry.path, entry.artifact.format, size, entry.manifest.short


def _as_json(path: Path, lock: Lockfile, changes: list[LockChange]) -> dict[str, object]:
    def entry(item: LockedArtifact | None) -> object:
        return None if item is None else item.to_json()

    return {
        "output": str(path),
        "changed": bool(changes),
        "models": [item.to_json() for item in lock.models.values()],
        "changes": [
            {"name": item.name, "before": entry(item.before), "after": entry(item.after)} for item in changes
        ],
    }
