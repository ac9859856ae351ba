"""Checks of the version 1 keys that repeat a verdict, against the verdict. Pure; ValueError names the contradiction.

    certified            true: an artifact is certified, and none is refused; false: not all that were judged are certified
    quant_recall_delta   the value of the check of that name; beside `certified` at most the limit

They are at the top of a manifest, in `quantization`, and beside each artifact in `metadata`.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

LOSS = "quant_recall_delta"
"""The check whose value is the largest loss of recall of any label against the full-precision parent."""
LIMIT = 0.005
"""The most that a certified artifact may lose, if nothing names another limit: that of the gate G4."""
Place = tuple[str, Mapping[str, Any], Collection[Any]]
"""The path of the keys, their values, and the artifacts that they are about."""


def check_mirrored(manifest: Any) -> None:
    """ValueError if a manifest says one thing of its artifacts and another of their verdicts."""
    limit = (manifest.certification or {}).get("limit")
    for path, keys, artifacts in _places(manifest):
        _check_certified(
            path, keys.get("certified"), [artifact.certification.state for artifact in artifacts]
        )
        _check_loss(path, keys, artifacts, keys.get("certification_limit", limit))


def _places(manifest: Any) -> Iterator[Place]:
    top = {key: getattr(manifest, key) for key in ("certified", LOSS)}
    yield "", top, manifest.artifacts
    yield "quantization.", manifest.quantization or {}, manifest.artifacts
    for index, artifact in enumerate(manifest.artifacts):
        metadata = artifact.metadata.model_extra or {}
        yield f"artifacts.{index}.metadata.", metadata, (artifact,)
        if isinstance(quantization := metadata.get("quantization"), Mapping):
            yield f"artifacts.{index}.metadata.quantization.", quantization, (artifact,)


def _check_certified(path: str, value: Any, states: Collection[str]) -> None:
    if value is None:
        return
    if value not in (True, False) or not isinstance(value, bool):
        raise ValueError(f"{path}certified is neither true nor false")
    proven = "certified" in states and "refused" not in states
    if value and not proven:
        raise ValueError(
            f"{path}certified is true, and certification.state of the artifacts is not certified"
        )
    if not value and proven and "unknown" not in states:
        raise ValueError(f"{path}certified is false, and certification.state of the artifacts is certified")


def _check_loss(path: str, keys: Mapping[str, Any], artifacts: Collection[Any], limit: Any) -> None:
    loss = keys.get(LOSS)
    if loss is None:
        return
    if not is_number(loss):
        raise ValueError(f"{path}{LOSS} is not a number")
    measured = {check.value for artifact in artifacts for check in artifact.checks if check.name == LOSS}
    if measured and loss not in measured:
        raise ValueError(f"{path}{LOSS} is {loss:g}, and no check of that name has this value")
    most = limit if is_number(limit) else LIMIT
    if keys.get("certified") is True and loss > most:
        raise ValueError(f"{path}{LOSS} is {loss:g} beside certified, and the limit is {most:g}")


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
