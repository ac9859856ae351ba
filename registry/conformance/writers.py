"""A tiny model that two writers push to one place, and a reader pulls."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from onnxreg.registry.log.commit import load
from onnxreg.registry.maintain.verification import verify_model
from onnxreg.registry.read.versions import PublishedVersion
from onnxreg.registry.registry import Registry
from onnxreg.registry.store.protocol import RegistryStore
from onnxreg.registry.transfer.copy import copy
from onnxreg.registry.transfer.plan import TransferRequest
from onnxreg.registry.trust.rollback import CheckpointStore
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile

NAME = "trial/tiny"


def push_and_pull(opened: Callable[[], RegistryStore], writers: int = 2) -> Iterator[str]:
    """Each writer pushes its own version, all at once; then one reader pulls all of them, and every byte is right."""
    with TemporaryDirectory(prefix="onnxreg-live-") as name:
        directory = Path(name)
        registries = [_registry(directory, f"writer{number}") for number in range(writers)]
        made = [_published(registry, directory, number) for number, registry in enumerate(registries)]

        def push(number: int) -> None:
            copy(registries[number].store, opened(), TransferRequest(NAME, [made[number].version]))

        with ThreadPoolExecutor(writers) as pool:
            list(pool.map(push, range(writers)))
        yield from _pulled(opened(), _registry(directory, "reader"), made)


def _registry(directory: Path, name: str) -> Registry:
    """One that is forgotten with its directory: the user's own known heads learn nothing of it."""
    registry = Registry(directory / name)
    registry.heads = CheckpointStore(directory / "state")
    return registry


def _published(registry: Registry, directory: Path, number: int) -> PublishedVersion:
    root = directory / f"draft{number}"
    root.mkdir()
    (root / "model.onnx").write_bytes(f"trial {number} ".encode() * 1000)
    (root / "config.json").write_bytes(b"{}")
    artifacts = (DraftArtifact("onnx", "float32", "model.onnx"),)
    return registry.add(Draft(NAME, root, artifacts, (DraftFile("config", "config.json"),)), f"0.{number}.0")


def _pulled(remote: RegistryStore, reader: Registry, made: list[PublishedVersion]) -> Iterator[str]:
    held = load(remote, NAME)[0].entries
    lost = [str(published.version) for published in made if published.version not in held]
    if lost:
        yield f"version {' and '.join(lost)} was pushed, and is not there"
        return
    copy(remote, reader.store, TransferRequest(NAME, [published.version for published in made]))
    for published in made:
        if reader.get(published.ref).data != published.data:
            yield f"{published.ref} has another manifest than was pushed"
    for report in (verify_model(remote, NAME), reader.verify()):
        yield from (damage.detail for damage in report.damages)
