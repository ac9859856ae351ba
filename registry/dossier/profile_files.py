"""The profiles of dossiers: those that come with the program, and files of the user."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from onnxreg.registry.support.disk import read_given
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, suggest
from onnxreg.schema.core.text_files import read_yaml
from onnxreg.schema.dossier.dossier_profile import DossierProfile

EXTRA = "dossier"
FOLDER = Path(__file__).with_name("profiles")


@dataclass(frozen=True)
class LoadedProfile:
    """A profile with the digest of its file."""

    profile: DossierProfile
    digest: Digest


def profile_names() -> list[str]:
    """The profiles that come with the program."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_profile(name: str) -> LoadedProfile:
    """A profile by its name, or from a file. InputError if it is malformed or unknown."""
    if name in profile_names():
        return _load(FOLDER / f"{name}.yaml")
    path = Path(name)
    if path.suffix not in (".yaml", ".yml", ".json"):
        hint = suggest(name, profile_names())
        raise InputError(f"no profile is called {name[:80]!r}", hint or "name one of these, or a .yaml file")
    return _load(path)


def _load(path: Path) -> LoadedProfile:
    data = read_given(path)
    profile = DossierProfile.from_json(read_yaml(data, path.name, EXTRA), path.name)
    return LoadedProfile(profile, Digest.of(data))


def owner_keys(used: DossierProfile) -> Iterator[str]:
    """The keys that an owner's file may have: those of the used profile, and of every one that comes with the program."""
    yield from used.owner_keys()
    for name in profile_names():
        yield from load_profile(name).profile.owner_keys()
