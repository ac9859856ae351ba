"""The files of a dossier that people write: its profile, and the facts of the owner with their signature.

A signature is beside the facts: a DSSE envelope that names the file and the version.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from onnxreg.registry.dossier.version_record import VersionRecord
from onnxreg.registry.read.versions import PublishedVersion
from onnxreg.registry.signing import PrivateKey
from onnxreg.registry.support.disk import replace_file
from onnxreg.registry.trust.signatures import SignatureVerdict, judge_for
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import Advice, InputError, IntegrityError, suggest
from onnxreg.schema.core.given_file import read_given
from onnxreg.schema.core.text_files import read_yaml
from onnxreg.schema.dossier.dossier import DossierFacts
from onnxreg.schema.dossier.dossier_profile import DossierProfile, FactsStatement, OwnerFacts
from onnxreg.schema.signing.dsse import PAYLOAD_TYPE, Envelope, Signature, pae

EXTRA = "dossier"
PROFILE_FOLDER = Path(__file__).with_name("profiles")
FACTS_FILE, FACTS_SIGNATURE = "owner.yaml", "owner.yaml.sig"
"""The names of both in the directory of a dossier."""


@dataclass(frozen=True)
class LoadedProfile:
    """A profile with the digest of its file."""

    profile: DossierProfile
    digest: Digest


def profile_names() -> list[str]:
    """The profiles that come with the program."""
    return sorted(path.stem for path in PROFILE_FOLDER.glob("*.yaml"))


def load_profile(name: str) -> LoadedProfile:
    """A profile by its name, or from a file. InputError if it is malformed or unknown."""
    if name in profile_names():
        return _read_profile(PROFILE_FOLDER / f"{name}.yaml")
    path = Path(name)
    if path.suffix not in (".yaml", ".yml", ".json"):
        hint = suggest(name, profile_names())
        raise InputError(f"no profile is called {name[:80]!r}", hint or "name one of these, or a .yaml file")
    return _read_profile(path)


def _read_profile(path: Path) -> LoadedProfile:
    data = read_given(path)
    profile = DossierProfile.from_json(read_yaml(data, path.name, EXTRA), path.name)
    return LoadedProfile(profile, Digest.of(data))


def owner_keys(used: DossierProfile) -> Iterator[str]:
    """The keys that an owner's file may have: those of the used profile, and of every one that comes with the program."""
    yield from used.owner_keys()
    for name in profile_names():
        yield from load_profile(name).profile.owner_keys()


@dataclass(frozen=True)
class OwnerFile:
    """An owner's file, and the bytes of its signature if it has one. `label` is its name in errors."""

    label: str
    data: bytes
    facts: OwnerFacts
    signature: bytes | None

    @classmethod
    def read(cls, path: Path, profile: DossierProfile) -> "OwnerFile":
        """Read a file and `<file>.sig` beside it. NotFoundError; InputError if it is malformed or has a key of no profile."""
        data = read_given(path)
        facts = _read_facts(data, path.name)
        allowed = set(owner_keys(profile))
        if unknown := next((key for key in facts.statements if key not in allowed), None):
            raise InputError(
                f"{path.name}: no profile has a field {unknown[:64]!r}",
                suggest(unknown, allowed) or "the page docs/dossier.md lists the fields",
            )
        beside = signature_path(path)
        return cls(path.name, data, facts, read_given(beside) if beside.is_file() else None)

    @property
    def key_ids(self) -> set[str]:
        """The ids of the keys that signed it."""
        return (
            set()
            if self.signature is None
            else {item.keyid for item in Envelope.decode(self.signature).signatures}
        )

    def signed_for(self, record: VersionRecord) -> DossierFacts:
        """The digest of the file and its signers. IntegrityError if the signature is wrong, or is for another version."""
        if self.facts.name != record.ledger.name:
            raise InputError(f"{self.label} is about {self.facts.name}, not {record.ledger.name}")
        verdicts = self._verdicts(record)
        return DossierFacts(
            file=FACTS_FILE,
            digest=Digest.of(self.data),
            signers=tuple(str(item) for item in verdicts if item.status == "trusted"),
            unchecked=tuple(str(item) for item in verdicts if item.status == "unknown"),
        )

    def _verdicts(self, record: VersionRecord) -> list[SignatureVerdict]:
        """The verdict on each signature: `trusted` or `unknown`."""
        if self.signature is None:
            return []
        label = f"the signature of {self.label}"
        try:
            envelope = Envelope.decode(self.signature, label)
            statement = FactsStatement.decode(envelope.payload)
        except InputError as error:
            raise IntegrityError(f"{label} cannot be read: {error.message}", _again(record)) from error
        if statement != FactsStatement(Digest.of(self.data), record.manifest_digest):
            raise IntegrityError(f"{label} is of other facts or another version", _again(record))
        judge = judge_for(record.ledger, record.trust)
        verdicts = [
            judge.verdict(item.keyid, item.sig, envelope.signed, sys.maxsize) for item in envelope.signatures
        ]
        if wrong := next((item for item in verdicts if item.status not in ("trusted", "unknown")), None):
            raise IntegrityError(f"{label} does not count: {wrong}", _again(record))
        return verdicts


def signature_path(path: Path) -> Path:
    """The file beside an owner's file that has its signature."""
    return path.with_name(f"{path.name}.sig")


def sign_facts(path: Path, published: PublishedVersion, key: PrivateKey) -> Path:
    """Sign an owner's file for a version; returns the file with the signature.

    A signature by another key on the same file and version is kept. InputError if the file is malformed or about another model.
    """
    data = read_given(path)
    facts = _read_facts(data, path.name)
    if facts.name != published.name:
        raise InputError(f"{path.name} is about {facts.name}, not {published.name}")
    payload = FactsStatement(Digest.of(data), published.digest).encode()
    target = signature_path(path)
    others = _signatures(target, payload, key.public.id)
    envelope = Envelope(PAYLOAD_TYPE, payload, (*others, key.sign(pae(PAYLOAD_TYPE, payload))))
    replace_file(target, envelope.encode())
    return target


def _signatures(path: Path, payload: bytes, key_id: str) -> tuple[Signature, ...]:
    """The signatures by other keys that a file has on a payload."""
    try:
        envelope = Envelope.decode(path.read_bytes()) if path.is_file() else None
    except InputError:
        return ()
    if envelope is None or envelope.payload != payload:
        return ()
    return tuple(item for item in envelope.signatures if item.keyid != key_id)


def _read_facts(data: bytes, label: str) -> OwnerFacts:
    return OwnerFacts.from_json(read_yaml(data, label, EXTRA), label)


def _again(record: VersionRecord) -> Advice:
    return Advice("sign-facts", ref=record.located.ref)
