"""Stable quantization: a new release takes the scales of its parent, so that its delta is smaller."""

from collections.abc import Mapping
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

    def requantize(
        self, weight: Any, own: Codes, limits: tuple[int, int], codes: Any, scales: Any, zeros: Any = None
    ) -> Codes:
        """The codes of a float32 weight with the parent's scales and zero points; `own` if the parent lacks the weight.

        The parent has it if it has all its tensors by name, type and shape. InputError if they are shorter than their shapes.

        Args:
            own: as quantized without a parent.
            limits: the smallest and the largest code.
            codes, scales, zeros: the tensors (`onnx.TensorProto`) of `own`.
        """
        import numpy as np
        import onnx

        tensors = [one for one in (codes, scales, zeros) if one is not None]
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
                f"{self._parent.path.name} is damaged: {codes.name} is shorter than its shape",
                "fetch the file again",
            ) from error
        shape = own.scales.shape
        old_scales, *old_zeros = (array.astype(np.float32).reshape(shape) for array in arrays)
        old_zero = old_zeros[0] if old_zeros else own.zeros
        low, high = limits
        margin = MAX_CHANGE * (high - low)
        shared = tuple(axis for axis, size in enumerate(shape) if size == 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            change = np.abs(np.abs(own.scales / old_scales) - 1)
            nearest = np.rint(weight / old_scales) + old_zero
        fits = (
            (change <= MAX_CHANGE)
            & (nearest.min(axis=shared, keepdims=True) >= low - margin)
            & (nearest.max(axis=shared, keepdims=True) <= high + margin)
        )
        nearest = np.where(fits, nearest, own.values)
        values = np.clip(nearest, low, high)
        result = Codes(
            np.where(fits, values, own.values).astype(own.values.dtype),
            np.where(fits, old_scales, own.scales),
            np.where(fits, old_zero, own.zeros),
        )
        flags_of = {"scales": fits, "own_scales": ~fits, "clipped": fits & (nearest != values)}
        for name, flags in flags_of.items():
            self._counts[name] += int(flags.sum())
        self._counts["weights"] += 1
        self._energy += float(np.square(weight, dtype=np.float64).sum())
        self._lost += float(np.square(weight - result.restore(), dtype=np.float64).sum())
        return result

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
        return {"parent": self._parent.digest, **self._counts, "weight_error": float(f"{error:.4g}")}
