"""Which artifacts of a version a registry holds: those asked for of it, those that are here, and the event that says so.

A registry may hold only some artifacts of a version (`reg pull --format`), with their sidecars and the companions that
all share. Artifacts are named by path; None means all of them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from onnxreg.registry.log.ledger import Ledger
from onnxreg.registry.log.stamp import stamp
from onnxreg.registry.store.manifests import read_manifest
from onnxreg.schema.core.errors import IntegrityError, NotFoundError
from onnxreg.schema.core.suggest import suggest
from onnxreg.schema.core.version import Version
from onnxreg.schema.log.events import Hold
from onnxreg.schema.manifest.family import ModelFamily
from onnxreg.schema.manifest.manifest import Artifact, FileEntry, Manifest

Held = tuple[str, ...] | None
"""Paths of artifacts, sorted, or None for all."""

NAMED = 5
"""Members that a hint names."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The artifacts that are asked for: of any of these formats (none: of every format), and of this precision.

    Of a family only those of these members (none: of all). Or exactly those at these paths.
    """

    formats: tuple[str, ...] = ()
    precision: str | None = None
    paths: tuple[str, ...] = ()
    members: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.formats or self.paths or self.members) or self.precision is not None

    def of(self, manifest: Manifest, ref: str) -> Held:
        """The artifacts of a manifest that fit.

        NotFoundError, naming what there is, where a format or path has none, or a member that is asked for none that fits.
        """
        if self.paths:
            return self._at_paths(manifest, ref)
        owners = self._of_members(manifest, ref) if self.members else {ref: manifest.artifacts}
        fitting = [item for owner, offered in owners.items() for item in self._fitting(owner, offered)]
        found = {item.format for item in fitting}
        if missing := [name for name in self.formats if name not in found]:
            raise self._lacking(ref, missing[0], [item for each in owners.values() for item in each])
        return join(manifest, {item.path for item in fitting})

    def _fitting(self, owner: str, offered: Sequence[Artifact]) -> list[Artifact]:
        fitting = [
            item
            for item in offered
            if (not self.formats or item.format in self.formats) and self.precision in (None, item.precision)
        ]
        if not fitting:
            raise self._lacking(owner, next(iter(self.formats), "artifact"), offered)
        return fitting

    def _lacking(self, owner: str, what: str, offered: Sequence[Artifact]) -> NotFoundError:
        which = f"{what} of precision {self.precision}" if self.precision else what
        return NotFoundError(f"{owner} has no {which}", f"it has {_told(offered)}")

    def _of_members(self, manifest: Manifest, ref: str) -> dict[str, list[Artifact]]:
        """The artifacts of each member that is asked for."""
        family = manifest.model_family
        if family is None:
            raise NotFoundError(f"{ref} is no family, it has no members", "leave --member out")
        known = {item.path: item for item in manifest.artifacts}
        owners = {}
        for name in self.members:
            member = family.member(name)
            if member is None:
                raise _no_member(ref, name, family)
            if not member.artifacts:
                raise NotFoundError(
                    f"{name} of {ref} has no artifacts, its files come with every pull",
                    f"leave --member {name} out",
                )
            owners[f"{name} of {ref}"] = [known[path] for path in member.artifacts]
        return owners

    def _at_paths(self, manifest: Manifest, ref: str) -> Held:
        if missing := set(self.paths) - {item.path for item in manifest.artifacts}:
            raise NotFoundError(
                f"{ref} has no artifact {min(missing)}", f"it has {_told(manifest.artifacts)}"
            )
        return join(manifest, self.paths)


EVERYTHING = Selection()


def _no_member(ref: str, name: str, family: ModelFamily) -> NotFoundError:
    listed = f"`reg show {ref} --json` lists them under model_family"
    hint = suggest(name, [each.name for each in family.members], listed)
    return NotFoundError(f"{ref} has no member {name[:80]}", hint)


def held_artifacts(manifest: Manifest, held: Held) -> list[Artifact]:
    """The artifacts that are held. Raise IntegrityError if a log holds what the manifest does not have."""
    if held is None:
        return list(manifest.artifacts)
    if strange := set(held) - {item.path for item in manifest.artifacts}:
        raise IntegrityError(
            f"the log of {manifest.name} holds {min(strange)}, which is no artifact of that version",
            "the registry was tampered with or damaged",
        )
    return [item for item in manifest.artifacts if item.path in held]


def selected(manifest: Manifest, held: Held, selection: Selection, ref: str) -> list[Artifact]:
    """The artifacts that are asked for, or all that are held.

    Raise NotFoundError if one that is asked for is not held.
    """
    here = held_artifacts(manifest, held)
    if not selection:
        return here
    asked = held_artifacts(manifest, selection.of(manifest, ref))
    if missing := [item for item in asked if item not in here]:
        raise NotFoundError(
            f"{missing[0].path} of {ref} is not held here, only {_told(here)}",
            f"reg pull {ref} fetches the rest",
        )
    return asked


def held_files(manifest: Manifest, held: Held) -> Iterator[FileEntry]:
    """Every file of the version that is here but the manifest itself; the companions last."""
    for artifact in held_artifacts(manifest, held):
        yield from artifact.all_files()
    yield from manifest.files


def join(manifest: Manifest, *parts: Iterable[str] | None) -> Held:
    """All of these artifacts together."""
    every = {item.path for item in manifest.artifacts}
    paths = {path for part in parts for path in (every if part is None else part)}
    return None if paths >= every else tuple(sorted(paths))


def asked_of(source: Ledger, versions: Iterable[Version], selection: Selection) -> dict[Version, Held]:
    """What is asked for of each version of the source. NotFoundError as of `Selection.of`."""
    if not selection:
        return dict.fromkeys(versions)
    return {
        version: selection.of(_manifest(source, version), f"{source.name}:{version}") for version in versions
    }


def held_after(source: Ledger, destination: Ledger, asked: Mapping[Version, Held]) -> dict[Version, Held]:
    """What the destination holds of each version once it has what is asked for as well."""

    def after(version: Version, paths: Held) -> Held:
        held = _held_by(destination, version)
        return None if None in (paths, held) else join(_manifest(source, version), paths, held)

    return {version: after(version, paths) for version, paths in asked.items()}


def held_otherwise(ledger: Ledger, wanted: Mapping[Version, Held]) -> list[Version]:
    """The versions that are there, and of which it holds something else than is wanted."""
    return [
        version
        for version, held in wanted.items()
        if version in ledger.entries and ledger.entries[version].held != held
    ]


def check_held(source: Ledger, destination: Ledger, version: Version, selection: Selection) -> None:
    """Raise NotFoundError if something that is asked for is neither held by the source nor there already."""
    ours, theirs = source.entries[version].held, _held_by(destination, version)
    if ours is None or theirs is None:
        return
    manifest, ref = _manifest(source, version), f"{source.name}:{version}"
    if join(manifest, ours, theirs, selection.of(manifest, ref)) != join(manifest, ours, theirs):
        held = held_artifacts(manifest, ours)
        raise NotFoundError(
            f"only {_told(held)} of {ref} is held by the registry that it comes from",
            f"reg pull {ref} there fetches the rest; or take what it has: reg pull {ref} {_options(manifest, held)}",
        )


def _options(manifest: Manifest, held: Sequence[Artifact]) -> str:
    """The options of a pull that a holder of these artifacts can answer; of a family with the members that it can give whole,
    or else in the format and precision of the first."""
    first, here = held[0], {item.path for item in held}
    narrow = f"--format {first.format} --precision {first.precision}"
    if manifest.model_family is None:
        return narrow
    alike = {
        item.path
        for item in manifest.artifacts
        if (item.format, item.precision) == (first.format, first.precision)
    }
    members = {member.name: {*member.artifacts} for member in manifest.model_family.members}
    whole = [name for name, paths in members.items() if paths and paths <= here]
    part = [name for name, paths in members.items() if alike & paths and alike & paths <= here]
    options = [f"--member {name}" for name in (whole or part)[:NAMED]]
    return " ".join(options if whole else [*options, narrow])


def holds(destination: Ledger, wanted: Mapping[Version, Held], actor: str | None) -> Iterator[Hold]:
    """The events by which the destination comes to say that it holds what is wanted."""
    for version in held_otherwise(destination, wanted):
        yield _hold(destination, version, wanted[version], actor)


def check_fits(source: Ledger, wanted: Mapping[Version, Held]) -> None:
    """Raise InputError if more artifacts of a version are wanted than an event of the destination can name:
    known before any of them is fetched."""
    for version, paths in wanted.items():
        if paths is not None:
            _hold(source, version, paths, None).check_fits()


def _hold(ledger: Ledger, version: Version, paths: Held, actor: str | None) -> Hold:
    manifest = ledger.entries[version].manifest
    return Hold(**stamp(ledger.name, actor), version=version, manifest=manifest, paths=paths)


def _held_by(ledger: Ledger, version: Version) -> Held:
    entry = ledger.entries.get(version)
    return () if entry is None or entry.gone is not None else entry.held


def _manifest(ledger: Ledger, version: Version) -> Manifest:
    entry = ledger.entries[version]
    return read_manifest(ledger.fetch(entry.manifest), entry.manifest, ledger.name)


def _told(artifacts: Iterable[Artifact]) -> str:
    return ", ".join(dict.fromkeys(f"{item.format} ({item.precision})" for item in artifacts))
