"""Passes that keep a graph's function and change its form: opset, public types, fixed shapes, fused operators."""

import re
from collections import Counter
from typing import Any, Literal, Self

from pydantic import AliasChoices, Field, NonNegativeInt, PositiveInt, field_validator, model_validator

from onnxreg.converters.onnx.onnx_graph import CONTRIB_DOMAIN, RUNTIME_OPERATORS, check_light
from onnxreg.converters.onnx.tensors import ELEMENTS
from onnxreg.converters.passes import models, samples
from onnxreg.converters.passes.base import Facts, GraphPass, PassParams, public_types
from onnxreg.schema.core.errors import ConversionError, InputError

MIN_OPSET, MAX_OPSET = 7, 26  # the lowest and the highest opset that ONNX Runtime 1.31 loads


class OnnxOpVersionConversion(GraphPass):
    """Convert the operators of the default domain up or down with ONNX's own converter.

    Local functions are inlined. The IR version becomes the version that was released with the opset.
    """

    id = "OnnxOpVersionConversion"
    version = 2
    tolerance = 1e-3

    class Params(PassParams):
        target_opset: int = Field(21, ge=MIN_OPSET, le=MAX_OPSET)

    def requires(self, subject: Any) -> None:
        super().requires(subject)
        if own := sorted(models.count_operators(subject).keys() & RUNTIME_OPERATORS - {"LayerNormalization"}):
            raise InputError(
                f"{self.id}: ONNX's converter does not know {', '.join(own)}, an operator of ONNX Runtime",
                "leave this pass out: such a graph runs in the opset that it has",
            )

    def apply(self, subject: Any) -> Any:
        import onnx

        target = self.params.target_opset
        if models.default_opset(subject) == target:
            return subject
        models.inline_functions(subject)
        try:
            models.replace(subject, onnx.version_converter.convert_version(models.light(subject), target))
            check_light(models.light(subject))
        except Exception as error:
            # assertions of the converter begin with a place in its source
            reason = (str(error).strip() or type(error).__name__).splitlines()[0].rpartition("failed: ")[2]
            raise ConversionError(
                f"the graph cannot be converted to opset {target}: {reason[:200]}"
            ) from error
        subject.ir_version = max(models.FIRST_IR_WITH_CONSTANTS, models.oldest_ir(subject))
        return subject

    def observe(self, subject: Any) -> Facts:
        before = super().observe(subject)
        return {**before, "opset": self.params.target_opset, "opset_before": before["opset"]}

    def ensures(self, before: Facts, after: Any) -> dict[str, Any]:
        result = super().ensures(before, after)
        return {**result, "opset_before": before["opset_before"], "ir_version": after.ir_version}


class OnnxIODataTypeConverter(GraphPass):
    """Change the type of the inputs and outputs that have type `source_dtype` and a name that matches `name_pattern`.

    Types are numbers of `onnx.TensorProto.DataType`. The pattern is a regular expression that may match anywhere.
    """

    id = "OnnxIODataTypeConverter"
    version = 2

    class Params(PassParams):
        name_pattern: str = "logits"
        source_dtype: int = 10
        target_dtype: int = 1

        @field_validator("name_pattern")
        @classmethod
        def _is_pattern(cls, value: str) -> str:
            try:
                re.compile(value)
            except re.error as error:
                raise ValueError(f"not a regular expression: {error}") from error
            return value

        @field_validator("source_dtype", "target_dtype")
        @classmethod
        def _is_number(cls, value: int) -> int:
            if value not in ELEMENTS or not ELEMENTS[value].bits:
                raise ValueError(f"{value} is not the number of an element type that can be cast")
            return value

    def requires(self, subject: Any) -> None:
        super().requires(subject)
        source = self.params.source_dtype
        if source == self.params.target_dtype:
            raise InputError(f"{self.id}: source_dtype and target_dtype are the same")
        if not self._matching(subject):
            present = (
                f"{name} ({ELEMENTS[number].name if number in ELEMENTS else 'unknown'})"
                for name, number in public_types(subject).items()
            )
            raise InputError(
                f"{self.id}: no input or output of type {ELEMENTS[source].name} matches {self.params.name_pattern!r}",
                f"the graph has {', '.join(present)}",
            )

    def observe(self, subject: Any) -> Facts:
        before = super().observe(subject)
        types = dict.fromkeys(self._matching(subject), self.params.target_dtype)
        return {**before, "types": {**before["types"], **types}}

    def apply(self, subject: Any) -> Any:
        import onnx_ir as ir

        matching, source, target = self._matching(subject), self.params.source_dtype, self.params.target_dtype
        self.found["converted"] = matching
        fresh, body = models.fresh_names(subject), subject.graph
        outputs = [value for value in body.outputs if value.name in matching]
        if stored := [value.name for value in outputs if value.producer() is None]:
            raise ConversionError(
                f"the output {stored[0]} is an input or a weight itself, and has one type only"
            )
        for value in (*(one for one in body.inputs if one.name in matching), *outputs):
            public, is_output = value.name, value.producer() is not None
            other = ir.Value(name=fresh(f"{public}_as_{ELEMENTS[source].name}"), shape=value.shape)
            if is_output:
                value.name, other.name = other.name, public
                body.outputs[body.outputs.index(value)] = other
            else:
                value.replace_all_uses_with(other, replace_graph_outputs=True)
            name, to = f"Cast_{value.name}_to_{other.name}", target if is_output else source
            body.append(ir.node("Cast", [value], {"to": to}, outputs=[other], name=name))
            (other if is_output else value).dtype = ir.DataType(target)
        body.sort()
        return subject

    def _matching(self, subject: Any) -> list[str]:
        source, types = self.params.source_dtype, public_types(subject).items()
        names = [name for name, kind in types if kind == source]
        return [name for name in names if re.search(self.params.name_pattern, name)]


class DynamicToFixedShape(GraphPass):
    """Fix the sizes of axes, or the shapes of inputs.

    `dim_param` (or `input_dim`) names axes, and `dim_value` has their sizes. Alternatively, `input_name` names inputs,
    and `input_shape` has their shapes. Axes with the same name get the same size.
    """

    id = "DynamicToFixedShape"
    tolerance = 1e-3

    class Params(PassParams):
        dim_param: tuple[str, ...] | None = Field(
            None, validation_alias=AliasChoices("dim_param", "input_dim")
        )
        dim_value: tuple[PositiveInt, ...] | None = None
        input_name: tuple[str, ...] | None = None
        input_shape: tuple[tuple[PositiveInt, ...], ...] | None = None

        @model_validator(mode="after")
        def _is_one_way(self) -> Self:
            by_axis, by_input = (self.dim_param, self.dim_value), (self.input_name, self.input_shape)
            if (by_axis == (None, None)) == (by_input == (None, None)):
                raise ValueError("give either dim_param and dim_value, or input_name and input_shape")
            names, sizes = by_axis if by_input == (None, None) else by_input
            if not names or not sizes or len(names) != len(sizes):
                raise ValueError("there must be as many names as sizes, and at least one")
            if len(set(names)) != len(names):
                raise ValueError("a name is given twice")
            return self

    def requires(self, subject: Any) -> None:
        super().requires(subject)
        self._sizes(subject)

    def apply(self, subject: Any) -> Any:
        sizes = self._sizes(subject)
        shapes = dict(zip(self.params.input_name or (), self.params.input_shape or (), strict=True))
        bounds = samples.index_bounds(subject)
        for body in subject.graphs():
            for value in (*body.inputs, *(() if body is subject.graph else body.outputs)):
                for axis, size in enumerate(shapes.get(value.name, ())):
                    models.set_size(value, axis, size)
                for axis, name in enumerate(models.sizes_of(value)):
                    models.set_size(value, axis, sizes.get(str(name), value.shape[axis]))
        named = {value.name: models.sizes_of(value) for value in subject.graph.outputs}
        for value in subject.graph.outputs:
            for axis, name in enumerate(named[value.name]):
                if name in sizes:  # PyTorch's exporter may give other axes this name
                    models.set_size(value, axis, None)
        fixed = models.session(subject, "the fixed graph")
        inferred = {item.name: item.shape for item in fixed.get_outputs()}
        results = samples.outputs(fixed, samples.draw(subject, bounds)[0], "the fixed graph")
        for value in subject.graph.outputs:
            sides = zip(named[value.name], inferred[value.name], results[value.name].shape, strict=False)
            for axis, (name, number, size) in enumerate(sides):
                if isinstance(number, int) or sizes.get(str(name)) == size:
                    models.set_size(value, axis, size)
        values = (*subject.graph.inputs, *subject.graph.outputs)
        self.found["shapes"] = {value.name: models.sizes_of(value) for value in values}
        return subject

    def _sizes(self, subject: Any) -> dict[str, int]:
        values = {value.name: models.sizes_of(value) for value in subject.graph.inputs}
        if self.params.dim_param is not None:
            axes = {axis for dims in values.values() for axis in dims if isinstance(axis, str) and axis}
            if unknown := [axis for axis in self.params.dim_param if axis not in axes]:
                hint = f"the axes are {', '.join(sorted(axes)) or 'all fixed'}"
                raise InputError(f"{self.id}: no input has an axis called {unknown[0]!r}", hint)
            return dict(zip(self.params.dim_param, self.params.dim_value, strict=True))
        sizes: dict[str, int] = {}
        for name, shape in zip(self.params.input_name, self.params.input_shape, strict=True):
            if len(values.get(name, ())) != len(shape):
                present = ", ".join(f"{other} {dims}" for other, dims in values.items())
                message = f"{self.id}: no input {name!r} has {len(shape)} axes"
                raise InputError(message, f"the inputs are {present}")
            for axis, size in zip(values[name], shape, strict=True):
                fixed = sizes.setdefault(axis, size) if isinstance(axis, str) and axis else axis or size
                if fixed != size:
                    raise InputError(
                        f"{self.id}: the axis {axis!r} of {name} cannot be {size}, it is {fixed}"
                    )
        return sizes


class OrtTransformersOptimization(GraphPass):
    """Fuse with the transformer optimizer of ONNX Runtime.

    `model_type` selects the fusions (`bert`, `gpt2`, `vit`, ...). If `num_heads` or `hidden_size` is 0, it is read from
    the graph. `opt_level` is the level of ONNX Runtime's own optimization, which runs first: 0 none, 1 basic, 2
    extended, 99 all. With `only_onnxruntime`, only this optimization runs. `fused` in the result counts the fused
    operators.
    """

    id = "OrtTransformersOptimization"
    tolerance = 1e-3

    class Params(PassParams):
        model_type: str = "bert"
        num_heads: NonNegativeInt = 0
        hidden_size: NonNegativeInt = 0
        opt_level: Literal[0, 1, 2, 99] | None = None
        only_onnxruntime: bool = False

    def requires(self, subject: Any) -> None:
        from onnxruntime.transformers.optimizer import MODEL_TYPES

        super().requires(subject)
        if self.params.model_type not in MODEL_TYPES:
            model_types = ", ".join(sorted(MODEL_TYPES))
            raise InputError(f"{self.id}: no model type {self.params.model_type!r}", f"one of {model_types}")

    def apply(self, subject: Any) -> Any:
        earlier, failure = models.count_operators(subject), "ONNX Runtime could not optimize the graph"
        with models.scratch() as directory, models.tool(self.id, failure):
            from onnxruntime.transformers.optimizer import optimize_model

            source = directory / "model.onnx"
            models.save(subject, source)
            optimized = optimize_model(str(source), **self.params.model_dump()).model
        if all(entry.domain != CONTRIB_DOMAIN for entry in optimized.opset_import):
            optimized.opset_import.add(domain=CONTRIB_DOMAIN, version=1)  # as the optimizer's `save` does
        optimized = models.from_tool(optimized)
        operators = models.count_operators(optimized)
        added = Counter(operators) - Counter(earlier)
        fused = {name: count for name, count in added.items() if name.startswith(f"{CONTRIB_DOMAIN}:")}
        nodes = {"before": sum(earlier.values()), "after": sum(operators.values())}
        self.found = {"fused": fused, "fusions": sum(fused.values()), "nodes": nodes}
        return optimized
