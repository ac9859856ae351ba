"""The search for models by plain words of their newest release.

Its description, its time and the words that find it are in its log and its manifest: these are read once for each release,
when a page needs them.
"""

from collections.abc import Iterable
from contextlib import suppress
from unicodedata import normalize

from onnxreg.registry.log import lookup
from onnxreg.registry.log.log import read_manifest
from onnxreg.registry.log.lookup import read_blob
from onnxreg.registry.search.catalog import Catalog, ModelLine
from onnxreg.registry.store.protocol import RegistryReader
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, RegError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.query.expression import spend

MAX_WORDS = 20
"""Words of one search."""


def find(
    catalog: Catalog, reader: RegistryReader, text: str, after: str, limit: int
) -> tuple[list[ModelLine], int]:
    """The first models after a name, by name, and the number of all that fit: every word is part of a model's texts.

    A search reads the releases that were never read, a list without words those that it shows. InputError for too many
    words.
    """
    words = dict.fromkeys(_folded(text).split())
    if len(words) > MAX_WORDS:
        raise InputError(f"{len(words)} words are too many for one search", f"use at most {MAX_WORDS}")
    models = catalog.readable()
    if words:
        _fill(catalog, reader, models)
    fitting = []
    for model in models:
        spend(1 + len(words))
        texts = model.name if model.words is None else model.words
        if all(word in texts for word in words):
            fitting.append(model)
    shown = [model for model in fitting if model.name > after][:limit]
    _fill(catalog, reader, shown)
    return shown, len(fitting)


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
            catalog.touch()


def _folded(text: str) -> str:
    """Text whose letters are compared without regard to case and form."""
    return normalize("NFKC", text).casefold()
