"""Joining converters and registry: an order is run, or found to have been run before, and published."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from onnxreg.schema.errors import InputError
from onnxreg.schema.sizes import parse_size

if TYPE_CHECKING:
    from onnxreg.converters.recipes.cache import Cache
    from onnxreg.converters.recipes.order import Order
    from onnxreg.registry import Registry
    from onnxreg.registry.facade import Published
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
        raise InputError(told, f"give {known}")


def check_alone(option: str, **others: object) -> None:
    """InputError where any of these was given beside an option that says it for each job."""
    name = next((name for name, value in others.items() if value is not None), None)
    if name is not None:
        told = "SOURCE" if name == "source" else f"--{name.replace('_', '-')}"
        raise InputError(f"--{option} and {told} contradict each other", "say it in the job file, row by row")


def check_needs(option: str, **others: object) -> None:
    """InputError where any of these was given without the option that it belongs to."""
    name = next((name for name, value in others.items() if value is not None), None)
    if name is not None:
        raise InputError(f"--{name} goes with --{option}", f"name a job file: --{option} FILE")
