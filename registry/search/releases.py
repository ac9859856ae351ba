"""The search for models by plain words, and by task, licence and format of their newest release.

Size, task, licence and formats come from the index files. When a release was published, its description and the words
that find it are in its log and its manifest: `_fill` reads these once for each release, when a page needs them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
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

FILTERS = ("task", "license", "format")
MAX_WORDS = 20
"""Words of one search."""
MAX_FACETS = 100
"""Values of a filter that are offered, those of the most models."""


def find(
    catalog: Catalog, reader: RegistryReader, text: str, filters: Mapping[str, str], after: str, limit: int
) -> tuple[list[ModelLine], int]:
    """The first models after a name, by name, and the number of all that fit. InputError for too many words.

    Every word is part of a model's texts, and its newest release has each value of `filters` ("": any). A search by words
    reads the releases that were never read; a list reads those that it shows.
    """
    words = dict.fromkeys(_folded(text).split())
    if len(words) > MAX_WORDS:
        raise InputError(f"{len(words)} words are too many for one search", f"use at most {MAX_WORDS}")
    if words:
        _fill(catalog, reader, catalog.readable())
    fitting = []
    for model in catalog.readable():
        spend(1 + len(words))
        texts, values = model.name if model.words is None else model.words, _values(model)
        if all(word in texts for word in words) and all(
            filters[key] in ("", *values[key]) for key in FILTERS
        ):
            fitting.append(model)
    shown = [model for model in fitting if model.name > after][:limit]
    _fill(catalog, reader, shown)
    return shown, len(fitting)


def facets(catalog: Catalog) -> dict[str, list[tuple[str, int]]]:
    """The values of each filter, with the number of models that have it, those of the most models first."""
    counts: dict[str, Counter[str]] = {key: Counter() for key in FILTERS}
    for model in catalog.models.values():
        for key, values in _values(model).items():
            counts[key].update(values)
    return {
        key: sorted(counter.items(), key=lambda item: (-item[1], item[0]))[:MAX_FACETS]
        for key, counter in counts.items()
    }


def _values(model: ModelLine) -> dict[str, list[str]]:
    """The values of a model for each filter."""
    single = {"task": model.task, "license": model.license}
    return {key: [value] if value else [] for key, value in single.items()} | {"format": model.formats}


def _fill(catalog: Catalog, reader: RegistryReader, models: Iterable[ModelLine]) -> None:
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
