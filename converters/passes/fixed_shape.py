"""`DynamicToFixedShape`: dynamic axes become sizes."""

from collections.abc import Mapping
from typing import Any

from pydantic import AliasChoices, Field, PositiveInt, model_validator

from onnxreg.converters.onnx.graph_operators import within
from onnxreg.converters.onnx.onnx_graph import graph_inputs
from onnxreg.converters.passes import base
from onnxreg.converters.passes.base import GraphPass
from onnxreg.converters.passes.tools import graph, model_file, samples
from onnxreg.schema.core.errors import ConversionError, InputError


class FixedShapeParams(base.PassParams, title="Params"):
    dim_param: tuple[str, ...] | None = Field(None, validation_alias=AliasChoices("dim_param", "input_dim"))
    dim_value: tuple[PositiveInt, ...] | None = None
    input_name: tuple[str, ...] | None = None
    input_shape: tuple[tuple[PositiveInt, ...], ...] | None = None

    @model_validator(mode="after")
    def _is_one_way(self) -> "FixedShapeParams":
        by_axis, by_input = (self.dim_param, self.dim_value), (self.input_name, self.input_shape)
        if (by_axis == (None, None)) == (by_input == (None, None)):
            raise ValueError("give either dim_param and dim_value, or input_name and input_shape")
        names, sizes = by_axis if by_input == (None, None) else by_input
        if not names or not sizes or len(names) != len(sizes):
            raise ValueError("there must be as many names as sizes, and at least one")
        if len(set(names)) != len(names):
            raise ValueError("a name is given twice")
        return self


class DynamicToFixedShape(GraphPass):
    """Fix axes by name (`dim_param`, also called `input_dim`, with `dim_value`), or whole inputs (`input_name` with
    `input_shape`).

    An axis name means one size wherever an input has it. The shapes of the outputs follow from those of the inputs, whatever
    the file calls their axes; those of intermediate values are dropped. The graph is run at the fixed shape.
    """

    id = "DynamicToFixedShape"
    tolerance = 1e-3

    Params = FixedShapeParams

    def requires(self, subject: Any) -> None:
        super().requires(subject)
        self._sizes(subject)

    def apply(self, subject: Any) -> Any:
        sizes = self._sizes(subject)
        shapes = dict(zip(self.params.input_name or (), self.params.input_shape or (), strict=True))
        bounds = samples.index_bounds(subject)
        graph.clear_value_info(subject)
        for body in within(subject.graph):
            for value in (*body.input, *(() if body is subject.graph else body.output)):
                dims = value.type.tensor_type.shape.dim
                for dim, size in zip(dims, shapes.get(value.name, ()), strict=False):
                    dim.dim_value = size
                for dim in dims:
                    if dim.dim_param in sizes:
                        dim.dim_value = sizes[dim.dim_param]
        named = {value.name: _dims(value) for value in subject.graph.output}
        for dim in (dim for value in subject.graph.output for dim in value.type.tensor_type.shape.dim):
            if dim.dim_param in sizes:  # PyTorch's exporter gives the name of an input's axis to others, too
                dim.Clear()
        fixed = model_file.session(subject, "the fixed graph")
        inferred = {item.name: item.shape for item in fixed.get_outputs()}
        results = samples.outputs(fixed, samples.draw(subject, bounds)[0], "the fixed graph")
        for value in subject.graph.output:
            axes = value.type.tensor_type.shape.dim
            given = inferred[value.name], named[value.name], results[value.name].shape
            for dim, number, name, size in zip(axes, *given, strict=False):
                if not graph.has_size(dim) and (isinstance(number, int) or sizes.get(str(name)) == size):
                    dim.dim_value = number if isinstance(number, int) else size
            shape, real = _dims(value), list(results[value.name].shape)
            if len(shape) != len(real) or any(
                isinstance(a, int) and a != b for a, b in zip(shape, real, strict=True)
            ):
                raise ConversionError(f"{self.id}: the output {value.name} has the shape {real}, not {shape}")
        return subject

    def ensures(self, before: Mapping[str, Any], after: Any) -> dict[str, Any]:
        values = (*graph_inputs(after.graph), *after.graph.output)
        return {**super().ensures(before, after), "shapes": {value.name: _dims(value) for value in values}}

    def _sizes(self, subject: Any) -> dict[str, int]:
        """The size of each axis by name; InputError for what the graph does not have, or contradicts."""
        values = {value.name: _dims(value) for value in graph_inputs(subject.graph)}
        if self.params.dim_param is not None:
            axes = {axis for dims in values.values() for axis in dims if isinstance(axis, str) and axis}
            if unknown := [axis for axis in self.params.dim_param if axis not in axes]:
                raise InputError(
                    f"{self.id}: no input has an axis called {unknown[0]!r}",
                    f"the axes are {', '.join(sorted(axes)) or 'all fixed'}",
                )
            return dict(zip(self.params.dim_param, self.params.dim_value, strict=True))
        sizes: dict[str, int] = {}
        for name, shape in zip(self.params.input_name, self.params.input_shape, strict=True):
            if name not in values:
                raise InputError(
                    f"{self.id}: no input is called {name!r}", f"the inputs are {', '.join(values)}"
                )
            if len(values[name]) != len(shape):
                raise InputError(
                    f"{self.id}: {name} has {len(values[name])} axes, {len(shape)} sizes were given"
                )
            for axis, size in zip(values[name], shape, strict=True):
                fixed = sizes.setdefault(axis, size) if isinstance(axis, str) and axis else axis or size
                if fixed != size:
                    raise InputError(
                        f"{self.id}: the axis {axis!r} of {name} cannot be {size}, it is {fixed}"
                    )
        return sizes


def _dims(value: Any) -> list[int | str]:
    """Sizes and, of dynamic axes, names ("" if there is none)."""
    dims = value.type.tensor_type.shape.dim
    return [dim.dim_value if graph.has_size(dim) else dim.dim_param for dim in dims]
