"""The newest release of each model in a catalog, and the search for models by plain words.

Size, task, licence and formats come from the index files. When a release was published, its description and the words
that find it are in its log line and its manifest: `fill` reads these once for each release, when a page needs them.
"""

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple
from unicodedata import normalize

from onnxreg.registry.log import lookup
from onnxreg.registry.log.lookup import read_blob
from onnxreg.registry.search.catalog import REVISIONS, Catalog, ModelLine
from onnxreg.registry.store.protocol import RegistryReader
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, RegError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.query.expression.tree import spend

MAX_WORDS = 20
"""Words of one search."""
MAX_FACETS = 100
"""Values of a filter that are offered, those of the most models."""


class ModelFilter(NamedTuple):
    """Conditions on the newest release of a model: every word is part of its texts; task, licence and format are
    exactly these ("": any).
    """

    words: tuple[str, ...] = ()
    task: str = ""
    license: str = ""
    format: str = ""

    @classmethod
    def of(cls, text: str, **filters: str) -> "ModelFilter":
        """Read what a person typed. InputError for too many words."""
        words = tuple(dict.fromkeys(_folded(text).split()))
        if len(words) > MAX_WORDS:
            raise InputError(f"{len(words)} words are too many for one search", f"use at most {MAX_WORDS}")
        return cls(words, **filters)

    def admits(self, model: ModelLine) -> bool:
        """True if a model that can be read meets all conditions."""
        spend(1 + len(self.words))
        release = model.release
        texts = model.name if release is None or release.words is None else release.words
        return all(word in texts for word in self.words) and (
            self[1:] == ("", "", "")
            or (
                release is not None
                and self.task in ("", release.task)
                and self.license in ("", release.license)
                and (not self.format or self.format in release.formats)
            )
        )


class Facets(NamedTuple):
    """The values of each filter, with the number of models that have it, those of the most models first."""

    task: list[tuple[str, int]]
    license: list[tuple[str, int]]
    format: list[tuple[str, int]]


def facets(catalog: Catalog) -> Facets:
    """The values that newest releases have."""
    releases = [model.release for model in catalog.models.values() if model.release is not None]

    def most(values: Iterable[str | None]) -> list[tuple[str, int]]:
        counts = Counter(value for value in values if value is not None)
        return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:MAX_FACETS]

    return Facets(
        most(release.task for release in releases),
        most(release.license for release in releases),
        most(form for release in releases for form in release.formats),
    )


def find(
    catalog: Catalog, reader: RegistryReader, question: ModelFilter, after: str, limit: int
) -> tuple[list[ModelLine], int]:
    """The first models after a name, by name, and the number of all that fit.

    A search by words reads the releases that were never read; a list reads those that it shows.
    """
    readable = catalog.readable()
    if question.words:
        fill(catalog, reader, readable)
    fitting = [model for model in readable if question.admits(model)]
    shown = [model for model in fitting if model.name > after][:limit]
    fill(catalog, reader, shown)
    return shown, len(fitting)


def fill(catalog: Catalog, reader: RegistryReader, models: Iterable[ModelLine]) -> None:
    """Read the description, words and time of newest releases; of one that cannot be read, its page says why."""
    for model in models:
        release = model.release
        if release is not None and release.words is None:
            with suppress(RegError, LookupError):
                digest = Digest.parse(release.manifest)
                manifest = lookup.read_manifest(read_blob(reader, digest), digest, model.name)
                labels = dict.fromkeys(
                    label.removeprefix("B-").removeprefix("I-") for label in manifest.labels or ()
                )
                texts = (model.name, manifest.task, manifest.family, manifest.license, manifest.description)
                release.words = "\n".join(
                    _folded(text) for text in (*texts, *labels, *manifest.formats) if text
                )
                release.description = manifest.description
                release.published = _published(reader, model.name, Version.parse(release.version))
                catalog.revision = next(REVISIONS)


def _published(reader: RegistryReader, name: str, version: Version) -> str:
    """The time of the log line that published a version."""
    log = lookup.read_log(reader, name)
    return next(log.lines(log.versions[version].seq - 1)).event.time


def _folded(text: str) -> str:
    """Text whose letters are compared without regard to case and form."""
    return normalize("NFKC", text).casefold()
