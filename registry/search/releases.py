"""The search for models by plain words, and by task, licence and format of their newest release.

Size, task, licence and formats come from the index files. When a release was published, its description and the words
that find it are in its log and its manifest: `fill` reads these once for each release, when a page needs them.
"""

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple
from unicodedata import normalize

from onnxreg.registry.log import lookup
from onnxreg.registry.log.log import read_manifest
from onnxreg.registry.log.lookup import read_blob
from onnxreg.registry.search.catalog import REVISIONS, Catalog, ModelLine
from onnxreg.registry.store.protocol import RegistryReader
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, RegError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.query.expression import spend

MAX_WORDS = 20
"""Words of one search."""
MAX_FACETS = 100
"""Values of a filter that are offered, those of the most models."""


class ModelFilter(NamedTuple):
    """Conditions on a model: every word is part of its texts; task, licence and a format of its newest release are
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
        """True if a model meets all conditions."""
        spend(1 + len(self.words))
        texts = model.name if model.words is None else model.words
        return (
            all(word in texts for word in self.words)
            and self.task in ("", model.task)
            and self.license in ("", model.license)
            and (not self.format or self.format in model.formats)
        )


def facets(catalog: Catalog) -> dict[str, list[tuple[str, int]]]:
    """The values of each filter, with the number of models that have it, those of the most models first."""
    counts: dict[str, Counter[str]] = {key: Counter() for key in ("task", "license", "format")}
    for model in catalog.models.values():
        counts["task"].update(filter(None, [model.task]))
        counts["license"].update(filter(None, [model.license]))
        counts["format"].update(model.formats)
    return {
        key: sorted(counter.items(), key=lambda item: (-item[1], item[0]))[:MAX_FACETS]
        for key, counter in counts.items()
    }


def find(
    catalog: Catalog, reader: RegistryReader, question: ModelFilter, after: str, limit: int
) -> tuple[list[ModelLine], int]:
    """The first models after a name, by name, and the number of all that fit.

    A search by words reads the releases that were never read; a list reads those that it shows.
    """
    if question.words:
        fill(catalog, reader, catalog.readable())
    fitting = [model for model in catalog.readable() if question.admits(model)]
    shown = [model for model in fitting if model.name > after][:limit]
    fill(catalog, reader, shown)
    return shown, len(fitting)


def fill(catalog: Catalog, reader: RegistryReader, models: Iterable[ModelLine]) -> None:
    """Read the description, words and time of newest releases; of one that cannot be read, its page says why."""
    for model in models:
        if model.manifest is None or model.newest is None or model.words is not None:
            continue
        with suppress(RegError, LookupError):
            digest = Digest.parse(model.manifest)
            manifest = read_manifest(read_blob(reader, digest), digest, model.name)
            log = lookup.read_log(reader, model.name)
            model.published = next(log.lines(log.versions[Version.parse(model.newest)].seq - 1)).event.time
            labels = {label.removeprefix("B-").removeprefix("I-"): None for label in manifest.labels or ()}
            texts = (model.name, manifest.task, manifest.family, manifest.license, manifest.description)
            model.words = "\n".join(_folded(text) for text in (*texts, *labels, *manifest.formats) if text)
            model.description = manifest.description
            catalog.revision = next(REVISIONS)


def _folded(text: str) -> str:
    """Text whose letters are compared without regard to case and form."""
    return normalize("NFKC", text).casefold()
