"""`reg sign`: a signature on a version."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import Reason, RefArgument, TargetRemote
from onnxreg.cli.reports.decision_report import report_decision
from onnxreg.schema.core.ref import Ref

if TYPE_CHECKING:
    from onnxreg.registry.read.versions import Release
    from onnxreg.registry.signing import PrivateKey

EXAMPLES = (
    "reg sign acme/pii-small:1.2.0",
    "reg sign acme/pii-small:1.2.0 --key release-2026 --reason 'passed review 17'",
    "reg sign acme/pii-small:1.2.0 --key models --bundle ./pii-small.sig",
    "reg sign acme/pii-small:1.2.0 --remote origin",
)


def command(
    session: Session,
    ref: RefArgument,
    key: Annotated[
        str | None,
        typer.Option(help="One of your keys; default: REG_SIGNING_KEY, else your only key."),
    ] = None,
    bundle: Annotated[
        Path | None,
        typer.Option(
            help="Write a bundle for model_signing to this file, or to model.sig in this directory."
        ),
    ] = None,
    remote: TargetRemote = None,
    reason: Reason = None,
) -> None:
    """Sign a version: its manifest's digest, and with it every file, the recipe and the certificates.

    The signature is a DSSE envelope with an in-toto statement. It is kept as a blob, an event attests it,
    and it travels with the version on every push and pull. Signing is idempotent.

    With --bundle nothing is added to the registry: the command writes a file with which `model_signing
    verify key` (OpenSSF) checks a directory that `reg pull --output` wrote. The key must be of kind
    ecdsa-p256.
    """
    from onnxreg.registry.read.versions import read_version
    from onnxreg.registry.signing import sign_release, signing_key
    from onnxreg.schema.signing.dsse import MEDIA_TYPE

    private = signing_key(key)
    if bundle is not None:
        path = bundle / "model.sig" if bundle.is_dir() else bundle
        published = read_version(session.reader(remote), Ref.parse(ref))
        write_bundle(path, published, private)
        session.say(f"signed the files of {published.ref} in {path}")
        return
    registry, store = session.with_remote(remote)
    release = registry.get(ref, store)
    envelope = sign_release(release.name, release.version, release.data, private).encode()
    decisions = registry.decisions(release.name, store)
    result = decisions.attest(release.ref, envelope, MEDIA_TYPE, reason)
    by = f"with key {private.public.id[:12]}"
    report_decision(
        session,
        result,
        f"signed {result.target.ref} {by}",
        f"{result.target.ref} is already signed {by}",
        store,
        reason,
    )


def write_bundle(path: Path, published: "Release", key: "PrivateKey") -> None:
    """Write the bundle with which model_signing verifies a pulled version. InputError unless the key is ECDSA P-256."""
    from onnxreg.registry.log.contents import held_files
    from onnxreg.registry.support.disk import host_errors, replace_file
    from onnxreg.schema.manifest.vocabulary import FILENAME
    from onnxreg.schema.signing.dsse import make_bundle

    files = {file.path: file.digest for file in held_files(published.manifest, published.held)}
    data = make_bundle(published.name, {FILENAME: published.digest, **files}, key.public, key.sign)
    with host_errors(f"writing {path}"):
        replace_file(path, data)
