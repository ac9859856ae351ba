"""`reg trust`: whose signatures count, and what was seen of registries."""

from pathlib import Path
from typing import Annotated

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import Json
from onnxreg.cli.render import output
from onnxreg.schema.core.errors import InputError

EXAMPLES = (
    "reg trust show",
    "reg trust add release-2026 ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=",
    "reg trust add lab ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo= --model 'lab/*'",
    "reg trust add release-2027 --from-rotation release-2027.rotation.json",
    "reg trust reset origin acme/pii-small",
    "reg trust reset ./share",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Your name for the key.")]


def show(session: Session, as_json: Json = False) -> None:
    """Show the trusted keys, what must be signed, and the registries with a known head.

    With --json: {file, keys: [{name, kind, keyid, public, models, replaces, revoked}], require: [{models, registry,
    lines, since, versions, keys, after: [{registry, model, seq, head}]}], heads: [{registry, name,
    seq, head}]}; revoked is null or {date, reason}.
    """
    from onnxreg.registry.support.environment import trust_file
    from onnxreg.registry.trust.trust_file import load_trust, trust_json

    trust, heads = trust_json(load_trust()), session.heads().to_json()
    keys, needs = trust["keys"], trust["require"]
    rows = [
        (
            *(key["name"], key["kind"], key["keyid"][:12], ", ".join(key["models"])),
            key["revoked"]["reason"] if key["revoked"] else "",
        )
        for key in keys
    ]
    session.show(
        {"file": str(trust_file()), **trust, "heads": heads},
        output.table(("NAME", "KIND", "KEY ID", "MODELS", "REVOKED"), rows),
        [
            f"must be signed: {' and '.join(kinds)} of {', '.join(need['models'])}"
            for need in needs
            if (kinds := [word for word in ("lines", "versions") if need[word]])
        ],
        ["", "the last line that you saw of each log:"] if heads else [],
        output.table(
            ("REGISTRY", "MODEL", "SEQ", "HEAD"),
            [(head["registry"][:12], head["name"], head["seq"], head["head"][7:19]) for head in heads],
        ),
        [] if keys else f"no key is trusted: reg trust add NAME KEY writes to {trust_file()}",
    )


def add(
    session: Session,
    name: Name,
    key: Annotated[
        str | None, typer.Argument(help="The public key, as `reg key show` prints it.", metavar="[KEY]")
    ] = None,
    models: Annotated[
        list[str] | None,
        typer.Option("--model", help="Only for models of this name or pattern; may be repeated."),
    ] = None,
    rotation: Annotated[
        Path | None,
        typer.Option(
            "--from-rotation",
            help="Trust the key that `reg key rotate` made, by this statement of the key that it replaces.",
        ),
    ] = None,
) -> None:
    """Trust a key: its signatures count from now on. Confirm through another channel who owns it.

    With --from-rotation a key that you trust already vouches for it: it counts for the same models, and
    wherever that key is named. A statement by a revoked key does not count.
    """
    from onnxreg.registry.trust.trust_file import add_key, add_rotated_key

    if rotation is not None:
        if key is not None or models:
            raise InputError(
                "the statement says which key it is, and for which models", "leave KEY and --model away"
            )
        path, old = add_rotated_key(name, rotation)
        session.say(f"{name} is trusted as {old.name} is, which it replaces; see {path}")
        return
    if key is None:
        raise InputError("a key is missing", "name a public key, or a statement with --from-rotation")
    path = add_key(name, key, models or ())
    session.say(f"{name} is trusted; see {path}, where you also say what must be signed")


def reset(
    session: Session,
    registry: Annotated[
        str, typer.Argument(help="A remote (name, path or URL) or a registry id.", metavar="REMOTE|ID")
    ],
    name: Annotated[str | None, typer.Argument(help="Only this model.", metavar="[NAME]")] = None,
) -> None:
    """Forget what was seen of a registry, for example after a backup was restored.

    Without a NAME also forget its place, after it was removed or replaced: the registry found there next is
    accepted as new.

    The next answer is accepted like a first one. This gives up the proof that the registry went back, was
    rewritten or replaced, so ask its operator first.
    """
    remotes = session.remotes()
    registry_id = remotes.id_of(registry)
    forgotten = session.heads().reset(registry_id, name)
    places = remotes.unpin(registry_id) if name is None else []
    for model in forgotten:
        session.say(f"forgot the head of {model}: a rollback or fork before now can no longer be noticed")
    for url in places:
        session.say(f"forgot which registry was at {url}: another one there can no longer be noticed")
    if not forgotten and not places:
        session.say("nothing was known of it")
