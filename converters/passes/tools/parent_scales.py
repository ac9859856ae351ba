"""Stable quantization: a new release takes the scales of its parent, so that its delta is smaller."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from onnxreg.converters.onnx.external_data import external_files
from onnxreg.converters.onnx.onnx_graph import load_onnx
from onnxreg.converters.source.source_files import digest_file
from onnxreg.schema.core.errors import InputError

MAX_CHANGE = 0.1
"""A channel or row takes its own scale if it differs from the parent's by more than this share, or if a weight is farther
than this share of the range outside of the parent's range."""


@dataclass(frozen=True)
class ParentScales:
    """The quantized file of a parent release."""

    path: Path

    @cached_property
    def digest(self) -> str:
        return str(digest_file(self.path))

    @cached_property
    def tensors(self) -> Mapping[str, Any]:
        """The stored tensors (`onnx.TensorProto`) by name. InputError if the file cannot be read or is not quantized."""
        digest = self.digest
        model = load_onnx(self.path)
        if str(digest_file(self.path)) != digest:
            raise InputError(f"{self.path.name} was changed while it was read", "export again")
        if external_files(model, self.path):
            raise InputError(
                f"{self.path.name}: scales are taken from a file that has its weights in it, this one names others",
                "leave the scales out",
            )
        stored = {tensor.name: tensor for tensor in model.graph.initializer}
        if not any(tensor.data_type in (tensor.INT8, tensor.UINT8) for tensor in stored.values()):
            raise InputError(
                f"{self.path.name} has no scales to take: no weight in it is quantized to 8 bits",
                "name the quantized file of the parent release",
            )
        return stored


@dataclass(frozen=True)
class Codes:
    """Weights in 8 bits: `(values - zeros) * scales`. `scales` and `zeros` broadcast to `values`, axis by axis."""

    values: Any
    scales: Any
    zeros: Any


class ScaleTransfer:
    """One run of a pass that takes scales from a parent; it counts what became of the weights."""

    def __init__(self, parent: ParentScales) -> None:
        self._parent = parent
        self._counts = dict.fromkeys(("weights", "own_weights", "scales", "own_scales", "clipped"), 0)

    def requantize(self, weight: Any, own: Codes, limits: tuple[int, int], tensors: Sequence[Any]) -> Codes:
        """The codes of a float32 weight with the parent's scales and zero points; `own` if the parent lacks the weight.

        The parent has it if it has all its tensors by name, type and shape. InputError if they are shorter than their shapes.

        Args:
            own: as quantized without a parent.
            limits: the smallest and the largest code.
            tensors: the codes, the scales and, if any are stored, the zero points of `own` (`onnx.TensorProto`).
        """
        import numpy as np
        import onnx

        partners = [self._parent.tensors.get(tensor.name) for tensor in tensors]
        if any(
            partner is None or partner.data_type != tensor.data_type or partner.dims != tensor.dims
            for partner, tensor in zip(partners, tensors, strict=True)
        ):
            self._counts["own_weights"] += 1
            return own
        try:
            _, *arrays = map(onnx.numpy_helper.to_array, partners)
        except ValueError as error:
            raise InputError(
                f"{self._parent.path.name} is damaged: {tensors[0].name} is shorter than its shape",
                "fetch the file again",
            ) from error
        shape = own.scales.shape
        scales, *zeros = (array.astype(np.float32).reshape(shape) for array in arrays)
        zero, (low, high) = zeros[0] if zeros else own.zeros, limits
        margin = MAX_CHANGE * (high - low)
        shared = tuple(axis for axis, size in enumerate(shape) if size == 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            change = np.abs(np.abs(own.scales / scales) - 1)
            nearest = np.rint(weight / scales) + zero
        fits = (
            (change <= MAX_CHANGE)
            & (nearest.min(axis=shared, keepdims=True) >= low - margin)
            & (nearest.max(axis=shared, keepdims=True) <= high + margin)
        )
        is_clipped = fits & ((nearest < low) | (nearest > high))
        counts = {
            "weights": 1,
            "scales": fits.sum(),
            "own_scales": (~fits).sum(),
            "clipped": is_clipped.sum(),
        }
        for name, number in counts.items():
            self._counts[name] += int(number)
        return Codes(
            np.where(fits, np.clip(nearest, low, high), own.values).astype(own.values.dtype),
            np.where(fits, scales, own.scales),
            np.where(fits, zero, own.zeros),
        )

    def report(self) -> dict[str, Any]:
        """The record of a step: the parent's digest, and counts.

        `weights` and `scales` were taken from the parent, `own_weights` and `own_scales` were not; `clipped` weights
        are outside of the parent's range. Raises InputError if no weight has a partner.
        """
        if not self._counts["weights"]:
            raise InputError(
                f"{self._parent.path.name} is of another model: no weight has codes and scales of the same name, type "
                "and shape in it",
                "name a release of the same architecture, quantized by the same pass",
            )
        return {"parent": self._parent.digest, **self._counts}
