"""`reg tag`, `reg untag`, `reg pin`, `reg yank`, `reg drop` and `reg sign`. Each decision is an event of the log."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from onnxreg.cli.options import CHANNEL, EXACT_REF, REASON, REF, REMOTE, Session, flag, option
from onnxreg.cli.output import write_file
from onnxreg.registry.log.contents import Release, held_files, read_version, was_pushed
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import Ref

if TYPE_CHECKING:
    from onnxreg.registry.log.decisions import DecisionResult
    from onnxreg.registry.signing import PrivateKey
    from onnxreg.registry.store.protocol import RegistryStore

EXAMPLES = (
    "reg tag acme/pii-small:1.2.0 stable --reason 'passed the field test'",
    "reg untag acme/pii-small:beta --reason 'the trial is over'",
    "reg pin acme/pii-small:1.2.0 --reason 'in devices until 2031'",
    "reg pin acme/pii-small:1.2.0 --undo",
    "reg yank acme/pii-small:1.2.0 --reason 'labels in the wrong order'",
    "reg yank acme/pii-small:1.2.0 --undo",
    "reg drop acme/pii-small:1.2.0 --reason 'wrong checkpoint'",
    "reg sign acme/pii-small:1.2.0",
    "reg sign acme/pii-small:1.2.0 --key release-2026 --reason 'passed review 17'",
    "reg sign acme/pii-small:1.2.0 --key models --bundle ./pii-small.sig",
)


def tag(
    session: Session,
    ref: str = REF,
    channel: str = CHANNEL,
    remote: str | None = REMOTE,
    reason: str | None = REASON,
) -> None:
    """Move a channel to a version. The log records the move."""
    registry, store = session.with_remote(remote)
    result = registry.tag(ref, channel, reason, store)
    name, version = f"{result.target.name}:{channel}", result.target.version
    moved = f"{name}: {result.before} -> {version}" if result.before else f"{name} is {version}"
    _report(session, result, moved, f"{name} is already {version}", store, reason)


def untag(session: Session, ref: str = REF, remote: str | None = REMOTE, reason: str | None = REASON) -> None:
    """Remove a channel: NAME:CHANNEL. Versions are kept. The log records the removal."""
    parsed = Ref.parse(ref)
    if parsed.tag is None:
        raise InputError(f"{ref} names no channel", "write reg untag NAME:CHANNEL")
    registry, store = session.with_remote(remote)
    version = registry.decisions(parsed.name, store).untag(parsed.name, parsed.tag, reason)
    session.say(f"{parsed.name}:{parsed.tag} is removed{session.place(store)}; it was {version}")


def pin(
    session: Session,
    ref: str = EXACT_REF,
    remote: str | None = REMOTE,
    reason: str | None = REASON,
    undo: bool = flag("Take the pin back."),
) -> None:
    """Keep a version forever: `reg gc` does not let it expire."""
    registry, store = session.with_remote(remote)
    target = Ref.parse(ref)
    result = registry.decisions(target.name, store).pin(target, reason, undo)
    _report(session, result, *_states(result, "pinned", undo), store, reason)


def yank(
    session: Session,
    ref: str = EXACT_REF,
    remote: str | None = REMOTE,
    reason: str | None = REASON,
    undo: bool = flag("Take the yank back."),
) -> None:
    """Yank a version: from now on, only a ref with the digest resolves to it.

    A yank applies to the manifest: all versions with the same manifest, including versions that are published later,
    are yanked until --undo.
    """
    registry, store = session.with_remote(remote)
    result = registry.yank(ref, reason, undo, store)
    name = result.target.name
    _report(session, result, *_states(result, "yanked", undo), store, reason)
    suffix = "" if remote is None else f" --remote {quote(remote)}"
    for channel, entry in () if undo else result.channels.items():
        move = f"reg {'promote' if entry.policy else 'tag'} {name}:VERSION {channel}{suffix}"
        session.warn(f"warning: {channel} holds it and resolves to nothing until it moves: {move}")
    for channel in result.halted:
        session.warn(f"warning: its rollout to {channel} is over; --undo does not begin it again")
    if result.is_logged and result.others:
        versions = ", ".join(f"{name}:{version}" for version in result.others)
        session.say(f"the same holds for {versions}, with the same manifest")
    if result.is_logged and not undo:
        session.say(f"to take it back: reg yank {name}:{result.target.version} --undo{suffix}")


def drop(session: Session, ref: str = EXACT_REF, reason: str | None = REASON) -> None:
    """Take back a version that was never pushed, pulled, mirrored or archived. Its number can then be used again.

    The next `reg gc` deletes its files. If others may have the version, or if it was promoted or evaluated, use `reg
    yank` instead.
    """
    registry, target = session.open(), Ref.parse(ref)
    decisions = registry.decisions(target.name)
    dropped = decisions.drop(target, lambda located: was_pushed(registry.store, located), reason)
    session.say(f"dropped {dropped.target.ref}; `reg gc` frees its bytes")


def sign(
    session: Session,
    ref: str = REF,
    key: str | None = option(
        "One of your keys; default: the key in REG_SIGNING_KEY or, without it, your only key."
    ),
    bundle: Path | None = option("Write a bundle for model_signing to this file or directory (model.sig)."),
    remote: str | None = REMOTE,
    reason: str | None = REASON,
) -> None:
    """Sign a version: its manifest's digest, and with it every file, the recipe and the certificates.

    The signature (DSSE, in-toto) travels with the version. Signing is idempotent.

    With --bundle nothing is added to the registry. The command writes a file with which OpenSSF's `model_signing verify
    key` checks a directory that `reg pull --output` wrote. The key must be of kind ecdsa-p256.
    """
    from onnxreg.registry.signing import sign_statement, signing_key
    from onnxreg.schema.signing.dsse import MEDIA_TYPE, release_statement

    private = signing_key(key)
    if bundle is not None:
        path = bundle / "model.sig" if bundle.is_dir() else bundle
        write_bundle(path, release := read_version(session.reader(remote), Ref.parse(ref)), private)
        session.say(f"signed the files of {release.ref} in {path}")
        return
    registry, store = session.with_remote(remote)
    release = registry.get(ref, store)
    statement = release_statement(release.name, release.version, release.data)
    envelope = sign_statement(statement, private).encode()
    result = registry.decisions(release.name, store).attest(release.ref, envelope, MEDIA_TYPE, reason)
    name, by = result.target.ref, f"with key {private.public.id[:12]}"
    _report(session, result, f"signed {name} {by}", f"{name} is already signed {by}", store, reason)


def write_bundle(path: Path, published: Release, key: "PrivateKey") -> None:
    """Sign exactly the files that `reg pull` would write for a version. The signature is written to `path`, as a bundle
    for the tool model_signing. Raise InputError if the key is not ECDSA P-256.
    """
    from onnxreg.schema.manifest.vocabulary import FILENAME
    from onnxreg.schema.signing.dsse import make_bundle

    files = {file.path: file.digest for file in held_files(published.manifest, published.held)}
    write_file(path, make_bundle(published.name, {FILENAME: published.digest, **files}, key.public, key.sign))


def _states(result: "DecisionResult", word: str, undo: bool) -> tuple[str, str]:
    """Return a sentence for a change, such as `a:1 is yanked`, and one for no change: `a:1 is already yanked`."""
    news, status_quo = ("is no longer", "is not") if undo else ("is", "is already")
    return f"{result.target.ref} {news} {word}", f"{result.target.ref} {status_quo} {word}"


def _report(
    session: Session,
    result: "DecisionResult",
    news: str,
    status_quo: str,
    store: "RegistryStore | None",
    reason: str | None,
) -> None:
    if result.is_logged:
        session.say(f"{news}{session.place(store)}")
    else:
        lost = "; the reason is not logged" if reason else ""
        session.say(f"nothing to do: {status_quo}{session.place(store)}{lost}")
