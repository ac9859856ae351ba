"""`reg key`: the keys that this user signs with."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import Json
from onnxreg.cli.render import output
from onnxreg.schema.core.errors import ConflictError

if TYPE_CHECKING:
    from onnxreg.schema.signing.keys import PublicKey

EXAMPLES = (
    "reg key new release-2026",
    "reg key new models --kind ecdsa-p256",
    "reg key rotate release-2026 release-2027",
    "reg key list",
    "reg key show release-2026",
    "reg key show release-2026 --pem > release-2026.pem",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The key's name.")]


def new(
    session: Session,
    name: Name,
    kind: Annotated[
        str, typer.Option(help="ed25519, or ecdsa-p256 for bundles that model_signing verifies.")
    ] = "ed25519",
) -> None:
    """Create a key, encrypted with a passphrase, and print its public half for others to trust.

    The command asks for the passphrase, or reads REG_KEY_PASSPHRASE. The key never leaves your machine; it
    is stored in REG_KEYS, or in your configuration directory. A lost passphrase cannot be recovered.
    """
    from onnxreg.registry.signing import Keystore

    public = Keystore().new(name, kind)
    print(public)
    session.say(f"readers trust it with: reg trust add {name} {public}")


def rotate(
    session: Session,
    old: Annotated[str, typer.Argument(help="The key that is replaced.", metavar="OLD")],
    name: Annotated[str, typer.Argument(help="The name of the new key, which is made.", metavar="NEW")],
    file: Annotated[
        Path | None,
        typer.Option("--output", help="Write the statement to this file; default: NEW.rotation.json."),
    ] = None,
) -> None:
    """Make a key of the same kind, and a statement by the old key that the new one replaces it.

    Send the file to your readers. A reader who trusts the old key accepts the new one, for the same models, with
    `reg trust add NEW --from-rotation FILE`: it counts wherever the trust file, or a policy, names the
    old one. Both sign it, so nobody can be given a key that its owner does not have.
    """
    from onnxreg.registry.signing import Keystore, sign_rotation
    from onnxreg.registry.support.disk import check_outfile, outfile

    target = file or Path(f"{name}.rotation.json")
    if target.exists():
        raise ConflictError(f"{target} exists already", "name another file with --output")
    check_outfile(target)
    keys = Keystore()
    private = keys.private(old)
    with outfile(target) as stream:
        public = keys.new(name, private.public.kind)
        stream.write(sign_rotation(private, keys.private(name)).encode())
    print(public)
    session.say(
        f"readers who trust {old} continue with: reg trust add {name} --from-rotation {quote(str(target))}"
    )


def list_keys(session: Session, as_json: Json = False) -> None:
    """List your keys.

    With --json: {keys: [{name, kind, keyid, public}]}.
    """
    from onnxreg.registry.signing import Keystore

    keys = Keystore().list()
    rows = [(name, public.kind, public.id[:12], str(public)) for name, public in keys.items()]
    session.show(
        {"keys": [_document(name, public) for name, public in keys.items()]},
        output.table(("NAME", "KIND", "KEY ID", "PUBLIC KEY"), rows),
        [] if keys else "there are no keys: reg key new NAME makes one",
    )


def show(
    session: Session,
    name: Name,
    pem: Annotated[bool, typer.Option("--pem", help="Print PEM, for other tools.")] = False,
    as_json: Json = False,
) -> None:
    """Print the public half of a key.

    With --json: {name, kind, keyid, public, pem}.
    """
    from onnxreg.registry.signing import Keystore

    public = Keystore().public(name)
    text = public.pem.rstrip() if pem else str(public)
    if as_json:
        output.write_json(_document(name, public) | {"pem": public.pem})
    else:
        print(text)


def _document(name: str, public: "PublicKey") -> dict[str, str]:
    return {"name": name, "kind": public.kind, "keyid": public.id, "public": str(public)}
