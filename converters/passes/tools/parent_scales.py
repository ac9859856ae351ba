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
"""A channel, row or block takes its own scale if it differs from the parent's by more than this share, or if a weight
is farther than this share of the range outside of the parent's range."""


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

    def check(self) -> None:
        """Raise InputError if the file cannot be read, or is not quantized."""
        _ = self.tensors


@dataclass(frozen=True)
class Codes:
    """Weights in 8 bits: `(values - zeros) * scales`. `scales` and `zeros` broadcast to `values`, axis by axis."""

    values: Any
    scales: Any
    zeros: Any

    def restore(self) -> Any:
        import numpy as np

        return (self.values.astype(np.float32) - self.zeros) * self.scales


class ScaleTransfer:
    """One run of a pass that takes scales from a parent; it counts what became of the weights."""

    def __init__(self, parent: ParentScales) -> None:
        self._parent = parent
        self._counts = dict.fromkeys(("weights", "own_weights", "scales", "own_scales", "clipped"), 0)
        self._energy = self._lost = 0.0

    def find(self, tensors: Sequence[Any]) -> list[Any] | None:
        """The parent's arrays for the tensors of one new weight; None unless it has all by name, type and shape.

        Raises InputError if they are shorter than their shapes.
        """
        import onnx

        partners = [self._parent.tensors.get(tensor.name) for tensor in tensors]
        if any(
            partner is None or partner.data_type != tensor.data_type or partner.dims != tensor.dims
            for partner, tensor in zip(partners, tensors, strict=True)
        ):
            self._counts["own_weights"] += 1
            return None
        self._counts["weights"] += 1
        try:
            return [onnx.numpy_helper.to_array(partner) for partner in partners]
        except ValueError as error:
            raise InputError(
                f"{self._parent.path.name} is damaged: {tensors[0].name} is shorter than its shape",
                "fetch the file again",
            ) from error

    def requantize(self, weight: Any, own: Codes, old: Codes, limits: tuple[int, int]) -> Codes:
        """The codes of a float32 weight with the parent's scales and zero points.

        Args:
            own: as quantized without a parent.
            limits: the smallest and the largest code.
        """
        import numpy as np

        low, high = limits
        margin = MAX_CHANGE * (high - low)
        shared = tuple(axis for axis, size in enumerate(old.scales.shape) if size == 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            change = np.abs(np.abs(own.scales / old.scales) - 1)
            nearest = np.rint(weight / old.scales) + old.zeros
        fits = (
            (change <= MAX_CHANGE)
            & (nearest.min(axis=shared, keepdims=True) >= low - margin)
            & (nearest.max(axis=shared, keepdims=True) <= high + margin)
        )
        nearest = np.where(fits, nearest, own.values)
        values = np.clip(nearest, low, high)
        codes = Codes(
            np.where(fits, values, own.values).astype(own.values.dtype),
            np.where(fits, old.scales, own.scales),
            np.where(fits, old.zeros, own.zeros),
        )
        self._counts["scales"] += int(fits.sum())
        self._counts["own_scales"] += int((~fits).sum())
        self._counts["clipped"] += int((fits & (nearest != values)).sum())
        self._energy += float(np.square(weight, dtype=np.float64).sum())
        self._lost += float(np.square(weight - codes.restore(), dtype=np.float64).sum())
        return codes

    def report(self) -> dict[str, Any]:
        """The record of a step: the parent's digest, and counts.

        `weights` and `scales` were taken from the parent, `own_weights` and `own_scales` were not. `clipped` weights
        are outside of the parent's range. `weight_error` is the relative error of `weights`. Raises InputError if no
        weight has a partner.
        """
        if not self._counts["weights"]:
            raise InputError(
                f"{self._parent.path.name} is of another model: no weight has codes and scales of the same name, type "
                "and shape in it",
                "name a release of the same architecture, quantized by the same pass",
            )
        error = (self._lost / self._energy) ** 0.5 if self._energy else 0.0
        return {
            "parent": self._parent.digest,
            **self._counts,
            "weight_error": float(f"{error:.4g}"),
        }
