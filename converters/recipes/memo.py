"""Which manifest an order gave the last time: where it is known, nothing needs to be run."""

from pathlib import Path

from onnxreg.converters.recipes.cache import Cache
from onnxreg.converters.recipes.order import Order
from onnxreg.schema.digest import Digest

KIND, FILE = "exports", "manifest"


def recall(cache: Cache, order: Order, scratch: Path) -> Digest | None:
    """The digest of the manifest. Nothing that is in `scratch` is touched."""
    directory = scratch / ".recalled"
    directory.mkdir()
    if not cache.find(KIND, order.key(), directory):
        return None
    return Digest.parse((directory / FILE).read_text("ascii"))


def remember(cache: Cache, order: Order, manifest: Digest, scratch: Path) -> None:
    """Keep the digest for `recall`."""
    directory = scratch / ".remembered"
    directory.mkdir()
    (directory / FILE).write_text(str(manifest), "ascii")
    cache.keep(KIND, order.key(), directory)
