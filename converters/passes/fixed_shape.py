"""`DynamicToFixedShape`: dynamic axes become sizes."""

from collections.abc import Mapping
from typing import Any

from pydantic import AliasChoices, Field, PositiveInt, model_validator

from onnxreg.converters.onnx.graph_operators import within
from onnxreg.converters.onnx.onnx_graph import graph_inputs
from onnxreg.converters.passes import base
from onnxreg.converters.passes.base import GraphPass
from onnxreg.converters.passes.tools import graph, model_file, samples
from onnxreg.converters.passes.tools.samples import outputs
from onnxreg.schema.core.errors import ConversionError, InputError


class FixedShapeParams(base.PassParams, title="Params"):
    dim_param: tuple[str, ...] | None = Field(None, validation_alias=AliasChoices("dim_param", "input_dim"))
    dim_value: tuple[PositiveInt, ...] | None = None
    input_name: tuple[str, ...] | None = None
    input_shape: tuple[tuple[PositiveInt, ...], ...] | None = None

    @model_validator(mode="after")
    def _is_one_way(self) -> "FixedShapeParams":
        by_axis = (self.dim_param, self.dim_value)
        by_input = (self.input_name, self.input_shape)
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

    def observe(self, subject: Any) -> Mapping[str, Any]:
        return {**super().observe(subject), "bounds": samples.index_bounds(subject)}

    def apply(self, subject: Any) -> Any:
        sizes = self._sizes(subject)
        shapes = dict(zip(self.params.input_name or (), self.params.input_shape or (), strict=True))
        graph.clear_value_info(subject)
        for name, shape in shapes.items():
            _fix_input(subject, name, shape)
        for body in within(subject.graph):
            for value in (*body.input, *(() if body is subject.graph else body.output)):
                _fix(value, sizes)
        named = {value.name: _dims(value) for value in subject.graph.output}
        for value in subject.graph.output:
            _forget(value, sizes)
        fixed = model_file.session(subject, "the fixed graph")
        inferred = {item.name: item.shape for item in fixed.get_outputs()}
        for value in subject.graph.output:
            _fix_output(value, inferred[value.name])
        results = outputs(fixed, samples.draw(subject)[0], "the fixed graph")
        for value in subject.graph.output:
            axes = value.type.tensor_type.shape.dim
            for dim, name, size in zip(axes, named[value.name], results[value.name].shape, strict=False):
                if not graph.has_size(dim) and sizes.get(str(name)) == size:
                    dim.dim_value = size
        return subject

    def ensures(self, before: Mapping[str, Any], after: Any) -> dict[str, Any]:
        result = super().ensures(before, after)
        shapes = {value.name: _dims(value) for value in (*graph_inputs(after.graph), *after.graph.output)}
        feed = samples.draw(after, before["bounds"])[0]
        for name, array in outputs(
            model_file.session(after, "the fixed graph"), feed, "the fixed graph"
        ).items():
            stated = shapes[name]
            if len(stated) != array.ndim or any(
                isinstance(a, int) and a != b for a, b in zip(stated, array.shape, strict=True)
            ):
                raise ConversionError(
                    f"{self.id}: the output {name} has the shape {array.shape}, not {stated}"
                )
        return {**result, "shapes": shapes}

    def _sizes(self, subject: Any) -> dict[str, int]:
        """The size of each axis by name; InputError for what the graph does not have, or contradicts."""
        values = {value.name: value for value in graph_inputs(subject.graph)}
        axes = {axis for value in values.values() for axis in _dims(value) if isinstance(axis, str) and axis}
        if self.params.dim_param is not None:
            for axis in self.params.dim_param:
                if axis not in axes:
                    raise InputError(
                        f"{self.id}: no input has an axis called {axis!r}",
                        f"the axes are {', '.join(sorted(axes)) or 'all fixed'}",
                    )
            return dict(zip(self.params.dim_param, self.params.dim_value, strict=True))
        sizes: dict[str, int] = {}
        for name, shape in zip(self.params.input_name, self.params.input_shape, strict=True):
            if name not in values:
                raise InputError(
                    f"{self.id}: no input is called {name!r}", f"the inputs are {', '.join(values)}"
                )
            self._bind(sizes, values[name], shape)
        return sizes

    def _bind(self, sizes: dict[str, int], value: Any, shape: tuple[int, ...]) -> None:
        axes = _dims(value)
        if len(axes) != len(shape):
            raise InputError(f"{self.id}: {value.name} has {len(axes)} axes, {len(shape)} sizes were given")
        for axis, size in zip(axes, shape, strict=True):
            fixed = sizes.setdefault(axis, size) if isinstance(axis, str) and axis else axis or size
            if fixed != size:
                raise InputError(
                    f"{self.id}: the axis {axis!r} of {value.name} cannot be {size}, it is {fixed}"
                )


def _dims(value: Any) -> list[int | str]:
    """Sizes and, of dynamic axes, names ("" if there is none)."""
    dims = value.type.tensor_type.shape.dim
    return [dim.dim_value if graph.has_size(dim) else dim.dim_param for dim in dims]


def _fix(value: Any, sizes: Mapping[str, int]) -> None:
    for dim in value.type.tensor_type.shape.dim:
        if dim.dim_param in sizes:
            dim.dim_value = sizes[dim.dim_param]


def _forget(value: Any, sizes: Mapping[str, int]) -> None:
    """Drop the names that became sizes: PyTorch's exporter gives the name of an input's axis to others too."""
    for dim in value.type.tensor_type.shape.dim:
        if dim.dim_param in sizes:
            dim.Clear()


def _fix_input(subject: Any, name: str, shape: tuple[int, ...]) -> None:
    value = next(value for value in subject.graph.input if value.name == name)
    for dim, size in zip(value.type.tensor_type.shape.dim, shape, strict=True):
        dim.dim_value = size


def _fix_output(value: Any, inferred: list[int | str | None]) -> None:
    """Sizes that ONNX Runtime infers now; what depends on the data stays dynamic."""
    for dim, size in zip(value.type.tensor_type.shape.dim, inferred, strict=False):
        if not graph.has_size(dim) and isinstance(size, int):
            dim.dim_value = size
