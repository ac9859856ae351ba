"""`reg lock`: record, by digest, which artifacts an app's build uses."""

from pathlib import Path

from onnxreg.cli.options import DEVICE, REMOTE, Session, argument, flag, option, read_one_device
from onnxreg.cli.output import fields, size, table, write_file
from onnxreg.registry import lockfile
from onnxreg.registry.log.log import open_log
from onnxreg.schema.core.errors import GateError, InputError
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.inputs.lockfile import FILENAME, Lockfile
from onnxreg.schema.query.device import ResolveRequest
from onnxreg.schema.query.resolve import Query

EXAMPLES = (
    "reg lock acme/pii-small --device ort-android-1.23 --remote origin",
    "reg lock acme/pii-small:stable --format onnx-int8 --output app/onnxreg.lock",
    "reg lock --remote origin",
    "reg lock --update acme/pii-small --remote origin",
    "reg lock --check --remote origin",
)


def command(
    session: Session,
    *,
    refs: list[str] | None = argument(
        "NAME[:TAG][@sha256:...]: lock these models; by default, resolve those in the file again.",
        "[REF]...",
        models=True,
    ),
    query: Query,
    device: str | None = DEVICE,
    remote: str | None = REMOTE,
    path: Path = option("The lock file.", "--output", default=Path(FILENAME)),
    update: list[str] | None = option("Resolve only this model again; may be repeated.", metavar="NAME"),
    check: bool = flag("Write nothing; exit status 8 if the file would change."),
) -> None:
    """Resolve models and record the matching artifacts, file by file, for `reg pull --locked`.

    The options are those of `reg resolve`. The lock file stores each REF with its options; other models that are
    already in the file stay. Without REF, the models in the lock file are resolved again. If the results are the same
    as before, the file stays the same, byte for byte.

    With --json: {output, changed, models, changes: [{name, before, after}]}; models is the lock file's table of models.
    before and after are entries of this table, or null. If a locked channel is being rolled out, there is a key
    rollouts: [{ref, to, manifest, percent, salt, seq, where?}]; the lock has the version that the channel holds.
    """
    target_device = read_one_device(device)
    requests = [ResolveRequest(Ref.parse(ref), query, target_device) for ref in refs or ()]
    names = [request.ref.name for request in requests]
    if not refs and (query.to_json() or target_device):
        raise InputError("the options describe a REF, and none is named", "name a REF, or leave them out")
    if refs and update:
        raise InputError("REF and --update contradict each other", "lock REF with options, or --update NAME")
    if twice := next((name for name in names if names.count(name) > 1), None):
        message = f"{twice} is named twice: a lock holds one artifact of a model"
        raise InputError(message, "use another --output")
    before = Lockfile.of([]) if refs and not path.exists() else lockfile.read(path)
    reader = session.reader(remote)
    requests = requests or lockfile.recorded_requests(before, update or ())
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
    listed = [{"ref": ref, **rollout.to_json()} for ref, rollout in rollouts.items()]
    rows = [
        (item.name, item.version, item.artifact.path, item.artifact.format, size(item.size), item.manifest)
        for item in lock.models.values()
    ]
    unchanged = f"nothing changed: {path} is what the registry answers"
    session.show(
        {"output": path, "changed": bool(changes), "models": list(lock.models.values())}
        | {"changes": [fields(item, "name before after") for item in changes]}
        | ({"rollouts": listed} if listed else {}),
        table(("MODEL", "VERSION", "PATH", "FORMAT", "SIZE", "MANIFEST"), rows),
        "",
        map(str, changes),
        unchanged if not changes else None if check else f"written to {path}",
        [
            f"{item.name}: registry {item.registry[:12]}... has the locked manifest too"
            for item in locked
            if lock.is_moved(item)
        ],
        [f"{ref}: {rollout}; the lock has the release before" for ref, rollout in rollouts.items()],
    )
    if check and changes:
        raise GateError(f"{path} is not what the registry answers now", "run the same without --check")
