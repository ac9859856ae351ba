"""A tiny model that two writers push to one place, and a reader pulls."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from onnxreg.registry.facade import Registry
from onnxreg.registry.health.verify import verify_model
from onnxreg.registry.history.commit import load
from onnxreg.registry.moving.copying import copy
from onnxreg.registry.moving.planning import Wish
from onnxreg.registry.storage import Remote
from onnxreg.registry.trust.heads import Heads
from onnxreg.registry.versions import Published
from onnxreg.schema.draft import Draft, DraftArtifact, DraftFile

NAME = "trial/tiny"


def push_and_pull(opened: Callable[[], Remote], writers: int = 2) -> Iterator[str]:
    """Each writer pushes its own version, all at once; then one reader pulls all of them, and every byte is right."""
    with TemporaryDirectory(prefix="onnxreg-live-") as name:
        directory = Path(name)
        registries = [_registry(directory, f"writer{number}") for number in range(writers)]
        made = [_published(registry, directory, number) for number, registry in enumerate(registries)]

        def push(number: int) -> None:
            copy(registries[number].store, opened(), Wish(NAME, [made[number].version]))

        with ThreadPoolExecutor(writers) as pool:
            list(pool.map(push, range(writers)))
        yield from _pulled(opened(), _registry(directory, "reader"), made)


def _registry(directory: Path, name: str) -> Registry:
    """One that is forgotten with its directory: the user's own known heads learn nothing of it."""
    registry = Registry(directory / name)
    registry.heads = Heads(directory / "state")
    return registry


def _published(registry: Registry, directory: Path, number: int) -> Published:
    root = directory / f"draft{number}"
    root.mkdir()
    (root / "model.onnx").write_bytes(f"trial {number} ".encode() * 1000)
    (root / "config.json").write_bytes(b"{}")
    artifacts = (DraftArtifact("onnx", "float32", "model.onnx"),)
    return registry.add(Draft(NAME, root, artifacts, (DraftFile("config", "config.json"),)), f"0.{number}.0")


def _pulled(remote: Remote, reader: Registry, made: list[Published]) -> Iterator[str]:
    held = load(remote, NAME)[0].entries
    lost = [str(published.version) for published in made if published.version not in held]
    if lost:
        yield f"version {' and '.join(lost)} was pushed, and is not there"
        return
    copy(remote, reader.store, Wish(NAME, [published.version for published in made]))
    for published in made:
        if reader.get(published.ref).data != published.data:
            yield f"{published.ref} has another manifest than was pushed"
    for report in (verify_model(remote, NAME), reader.verify()):
        yield from (damage.detail for damage in report.damages)
