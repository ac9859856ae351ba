"""Joining converters and registry: an order is run, or found to have been run before, and published."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from onnxreg.cli.exported import Request, cache_at
from onnxreg.schema.errors import InputError
from onnxreg.schema.sizes import parse_size

if TYPE_CHECKING:
    from onnxreg.cli.session import Session
    from onnxreg.converters.recipes.cache import Cache
    from onnxreg.converters.recipes.order import Order
    from onnxreg.registry import Registry
    from onnxreg.registry.facade import Published
    from onnxreg.schema.version import Version


def cache_of(registry: "Registry") -> "Cache":
    """Where a registry keeps the results of steps."""
    return cache_at(registry.store.root)


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


def tell_translation(session: "Session", order: "Order") -> None:
    """What became of each field of another tool's document, on stderr."""
    for each in order.recipe.translation:
        value = "" if each.value is None else f" {json.dumps(each.value)}"
        session.warn(f"{each.field}{value}: {each.became}")


def publish(
    registry: "Registry",
    order: "Order",
    version: "Version | None",
    report: Callable[[str], None],
    request: Request | None = None,
) -> "Published":
    """Run an order and publish its draft; where it was run before and all its files are here, only the latter.

    Args:
        request: what the order was made from; nothing is cached without.
    """
    from onnxreg.converters.recipes.execute import execute

    with registry.workspace() as workspace:
        if request is None:
            return registry.add(execute(order, workspace, report=report), version)
        return _publish_cached(registry, order, version, report, request, workspace)


def _publish_cached(
    registry: "Registry",
    order: "Order",
    version: "Version | None",
    report: Callable[[str], None],
    request: Request,
    workspace: Path,
) -> "Published":
    from onnxreg.converters.recipes import memo
    from onnxreg.converters.recipes.execute import execute

    cache, limit = cache_of(registry), cache_limit()
    known = memo.recall(cache, order)
    published = None if known is None else registry.add_again(known, version)
    if published is None:
        published = registry.add(execute(order, workspace, cache, report), version)
        memo.remember(cache, order, published.digest)
        cache.trim(limit)
    memo.remember_request(cache, request.values, order, published.digest, request.documents)
    return published


def check_one(**given: object) -> None:
    """InputError unless exactly one of these options was given."""
    names = [f"--{name}" for name, value in given.items() if value is not None]
    if len(names) != 1:
        known = " or ".join(f"--{name}" for name in given)
        told = f"{' and '.join(names)} contradict each other" if names else "nothing says what to export for"
        raise InputError(told, f"see `reg export --help`: give {known}")
