"""`reg trust` and `reg key`: manage your own keys, the keys that you trust, and the known heads of registries."""

from typing import TYPE_CHECKING

from onnxreg.cli.options import Session, argument, flag, option
from onnxreg.cli.output import table, write_json

if TYPE_CHECKING:
    from onnxreg.schema.signing.dsse import PublicKey

EXAMPLES = (
    "reg trust show",
    "reg trust add release-2026 ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=",
    "reg trust add lab ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo= --model 'lab/*'",
    "reg trust reset origin acme/pii-small",
    "reg key new release-2026",
    "reg key new models --kind ecdsa-p256",
    "reg key list",
    "reg key show release-2026",
    "reg key show release-2026 --pem > release-2026.pem",
)


def trust_show(session: Session) -> None:
    """Show the trusted keys, what must be signed, and the registries with a known head.

    With --json: {file, keys: [{name, kind, keyid, public, models, replaces, revoked}], require: [{models, registry,
    lines, since, versions, keys, after: [{registry, model, seq, head}]}], heads: [{registry, name, seq, head}]};
    revoked is null or {date, reason}.
    """
    from onnxreg.registry.system import trust_file
    from onnxreg.registry.trust.known_heads import load_trust, trust_json

    trust, heads = trust_json(load_trust()), session.heads().to_json()
    keys, needs = trust["keys"], trust["require"]
    rows = [
        (key["name"], key["kind"], key["keyid"][:12], key["models"], (key["revoked"] or {}).get("reason"))
        for key in keys
    ]
    session.show(
        {"file": str(trust_file()), **trust, "heads": heads},
        table(("NAME", "KIND", "KEY ID", "MODELS", "REVOKED"), rows),
        [] if keys else f"no key is trusted: reg trust add NAME KEY writes to {trust_file()}",
        [
            f"must be signed: {' and '.join(kinds)} of {', '.join(need['models'])}"
            for need in needs
            if (kinds := [word for word in ("lines", "versions") if need[word]])
        ],
        ["", "the last line that you saw of each log:"] if heads else [],
        table(
            ("REGISTRY", "MODEL", "SEQ", "HEAD"),
            [(head["registry"][:12], head["name"], head["seq"], head["head"][7:19]) for head in heads],
        ),
    )


def trust_add(
    session: Session,
    name: str = argument("Your name for the key.", "NAME"),
    key: str = argument("The public key, as `reg key show` prints it.", "KEY"),
    models: list[str] | None = option("Only for models of this name or pattern; may be repeated.", "--model"),
) -> None:
    """Trust a key, so that its signatures count from now on. Confirm by phone or in person who owns the key."""
    from onnxreg.registry.trust.known_heads import add_key

    path = add_key(name, key, models or ())
    session.say(f"{name} is trusted; see {path}, where you also say what must be signed")


def trust_reset(
    session: Session,
    registry: str = argument("A remote (name, path or URL) or a registry id.", "REMOTE|ID"),
    name: str | None = argument("Only this model.", "[NAME]"),
) -> None:
    """Forget the known heads of a registry, for example after a backup was restored.

    Without NAME, the command also forgets at which URLs the registry was seen. The next answer of the registry is
    accepted, as at the first contact. Ask the registry's operator first: afterwards nobody can notice that the registry
    lost events, was rewritten or was replaced.
    """
    remotes = session.remotes()
    registry_id = remotes.id_of(registry)
    forgotten = session.heads().reset(registry_id, name)
    places = remotes.unpin(registry_id) if name is None else []
    lost = "can no longer be noticed"
    lines = [f"forgot the head of {model}: a rollback or fork before now {lost}" for model in forgotten]
    lines += [f"forgot which registry was at {url}: another one there {lost}" for url in places]
    session.say(*lines or ["nothing was known of it"])


KEY = argument("The key's name.", "NAME")


def key_new(
    session: Session,
    name: str = KEY,
    kind: str = option("ed25519, or ecdsa-p256 for bundles that model_signing verifies.", default="ed25519"),
) -> None:
    """Create a key, encrypted with a passphrase, and print its public half for others to trust.

    The passphrase comes from REG_KEY_PASSPHRASE. If this variable is not set, the command asks for it. The key stays in
    REG_KEYS, or in your configuration directory. A lost passphrase cannot be recovered.
    """
    from onnxreg.registry.signing import Keystore

    public = Keystore().new(name, kind)
    print(public)
    session.say(f"readers trust it with: reg trust add {name} {public}")


def key_list(session: Session) -> None:
    """List your keys.

    With --json: {keys: [{name, kind, keyid, public}]}.
    """
    from onnxreg.registry.signing import Keystore

    keys = Keystore().list()
    rows = [(name, public.kind, public.id[:12], str(public)) for name, public in keys.items()]
    session.show(
        {"keys": [_key_json(name, public) for name, public in keys.items()]},
        table(("NAME", "KIND", "KEY ID", "PUBLIC KEY"), rows),
        [] if keys else "there are no keys: reg key new NAME makes one",
    )


def key_show(session: Session, name: str = KEY, pem: bool = flag("Print PEM, for other tools.")) -> None:
    """Print the public half of a key.

    With --json: {name, kind, keyid, public, pem}.
    """
    from onnxreg.registry.signing import Keystore

    public = Keystore().public(name)
    text = public.pem.rstrip() if pem else str(public)
    if session.as_json:
        write_json(_key_json(name, public) | {"pem": public.pem})
    else:
        print(text)


def _key_json(name: str, public: "PublicKey") -> dict[str, str]:
    return {"name": name, "kind": public.kind, "keyid": public.id, "public": str(public)}
