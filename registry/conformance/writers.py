"""Trial of whole pushes: two writers push a tiny model to one store, and a reader pulls it."""

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
from onnxreg.registry.trust.known_heads import KnownHeads
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile

NAME = "trial/tiny"


def push_and_pull(open_store: Callable[[], RegistryStore], writers: int = 2) -> Iterator[str]:
    """Each writer pushes its own version, all at once; then one reader pulls all of them and verifies every
    byte.
    """
    with TemporaryDirectory(prefix="onnxreg-live-") as name:
        directory = Path(name)
        registries = [_registry(directory, f"writer{number}") for number in range(writers)]
        published = [_publish(registry, directory, number) for number, registry in enumerate(registries)]

        def push(number: int) -> None:
            copy(registries[number].store, open_store(), TransferRequest(NAME, [published[number].version]))

        with ThreadPoolExecutor(writers) as pool:
            list(pool.map(push, range(writers)))
        yield from _check_pull(open_store(), _registry(directory, "reader"), published)


def _registry(directory: Path, name: str) -> Registry:
    """A temporary registry with its own known heads, so that those of the user do not change."""
    registry = Registry(directory / name)
    registry.heads = KnownHeads(directory / "state")
    return registry


def _publish(registry: Registry, directory: Path, number: int) -> PublishedVersion:
    root = directory / f"draft{number}"
    root.mkdir()
    (root / "model.onnx").write_bytes(f"trial {number} ".encode() * 1000)
    (root / "config.json").write_bytes(b"{}")
    artifacts = (DraftArtifact("onnx", "float32", "model.onnx"),)
    return registry.add(Draft(NAME, root, artifacts, (DraftFile("config", "config.json"),)), f"0.{number}.0")


def _check_pull(remote: RegistryStore, reader: Registry, versions: list[PublishedVersion]) -> Iterator[str]:
    entries = load(remote, NAME)[0].entries
    lost = [str(published.version) for published in versions if published.version not in entries]
    if lost:
        yield f"version {' and '.join(lost)} was pushed, and is not there"
        return
    copy(remote, reader.store, TransferRequest(NAME, [published.version for published in versions]))
    for published in versions:
        if reader.get(published.ref).data != published.data:
            yield f"{published.ref} has another manifest than was pushed"
    for report in (verify_model(remote, NAME), reader.verify()):
        yield from (damage.detail for damage in report.damages)
