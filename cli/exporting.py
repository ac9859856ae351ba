"""Joining converters and registry: an order is run, or found to have been run before, and published."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onnxreg.schema.errors import InputError
from onnxreg.schema.sizes import parse_size

if TYPE_CHECKING:
    from onnxreg.converters.families.latency import Latency
    from onnxreg.converters.recipes.cache import Cache
    from onnxreg.converters.recipes.order import Order
    from onnxreg.registry import Registry
    from onnxreg.registry.facade import Published
    from onnxreg.schema.family_file import FamilyFile
    from onnxreg.schema.version import Version


def cache_of(registry: "Registry") -> "Cache":
    """Where a registry keeps the results of steps."""
    from onnxreg.converters.recipes.cache import Cache

    return Cache(registry.store.root / "local" / "cache")


def cache_limit() -> int:
    """Bytes: `REG_CACHE_SIZE`, such as `20GB`, else 10 GiB."""
    from onnxreg.converters.recipes.cache import LIMIT

    wanted = os.environ.get("REG_CACHE_SIZE")
    return parse_size(wanted) if wanted else LIMIT


def order_of(recipe: Path, source: str | None, name: str | None, trust_remote_code: bool) -> "Order":
    """The order of a recipe file, whose relative paths are relative to it."""
    from onnxreg.converters.recipes.order import place_order
    from onnxreg.converters.recipes.reading import read_recipe

    return place_order(read_recipe(recipe), source, name, recipe.parent, trust_remote_code)


def family_of(recipe: Path, name: str | None) -> "FamilyFile | None":
    """The family that a recipe file describes, under another name where one is given; None where it is a tree of passes."""
    from onnxreg.converters.recipes.reading import read_document
    from onnxreg.schema.family_file import FamilyFile

    value = read_document(recipe)
    if not isinstance(value, dict) or "family" not in value:
        return None
    return FamilyFile.from_json(value if name is None else {**value, "name": name}, recipe.name)


def publish_family(
    registry: "Registry",
    asked: "FamilyFile",
    directory: Path,
    version: "Version | None",
    report: Callable[[str], None],
) -> "tuple[Published, Sequence[Latency]]":
    """Export a family, whose relative paths are relative to `directory`, and publish its draft."""
    from onnxreg.converters.families.export import export_family

    with registry.workspace() as workspace:
        done = export_family(asked, directory, workspace, report)
        return registry.add(done.draft, version), done.latencies


def publish(
    registry: "Registry",
    order: "Order",
    version: "Version | None",
    cached: bool,
    report: Callable[[str], None],
) -> "Published":
    """Run an order and publish its draft; where it was run before and all its files are here, only the latter."""
    from onnxreg.converters.recipes.execute import execute
    from onnxreg.converters.recipes.memo import recall, remember

    cache, limit = (cache_of(registry), cache_limit()) if cached else (None, 0)
    with registry.workspace() as workspace, registry.scratch() as scratch:
        known = None if cache is None else recall(cache, order, scratch)
        found = None if known is None else registry.add_again(known, version)
        if found is not None:
            return found
        published = registry.add(execute(order, workspace, cache, report), version)
        if cache is not None:
            remember(cache, order, published.digest, scratch)
            cache.trim(limit)
    return published


def check_one(**given: object) -> None:
    """InputError unless exactly one of these options was given."""
    names = [f"--{name}" for name, value in given.items() if value is not None]
    if len(names) != 1:
        known = " or ".join(f"--{name}" for name in given)
        told = f"{' and '.join(names)} contradict each other" if names else "nothing says what to export for"
        raise InputError(told, f"see `reg export --help`: give {known}")
