"""The tests that every graph pass must pass, for the passes of onnxreg and of other packages.

    class TestMyPass(PassContract):
        def make(self):
            return MyPass(strength=2)

        def subject(self):
            return onnx.parser.parse_model(...)

pytest collects the tests.
"""

import os
import tempfile
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from onnxreg.converters.passes import base, models, samples
from onnxreg.converters.passes.base import GraphPass
from onnxreg.converters.passes.samples import Feed
from onnxreg.schema.core.errors import InputError, RegError
from onnxreg.schema.manifest.manifest import Step


class PassContract:
    """The tests that every graph pass must pass."""

    def make(self) -> GraphPass:
        """Return a new pass, with parameters that suit `subject`."""
        raise NotImplementedError

    def subject(self) -> Any:
        """Return a new small graph (`onnx.ModelProto`). The pass must change some of its weights."""
        raise NotImplementedError

    def test_parameters_are_checked_and_survive_a_document(self) -> None:
        pass_ = self.make()
        assert type(pass_)(**pass_.params.model_dump(mode="json")).params == pass_.params
        with pytest.raises(InputError):
            type(pass_)(**pass_.params.model_dump(), no_such_parameter=1)

    def test_the_result_is_proven_and_recorded(self) -> None:
        pass_ = self.make()
        _, step = run_and_compare("step", pass_, self.subject(), self.make().data)
        record = step.to_json()
        assert (record["pass"], record["version"]) == (pass_.id, pass_.version) and type(pass_).__doc__
        assert record["result"]["parity"]["outputs"]

    def test_the_same_input_gives_the_same_bytes_and_leaves_nothing_behind(self) -> None:
        with tempfile.TemporaryDirectory() as directory, chdir(directory):
            first, second = (base.run("step", self.make(), self.subject())[0] for _ in range(2))
            assert os.listdir() == []  # noqa: PTH208
        assert first.SerializeToString(deterministic=True) == second.SerializeToString(deterministic=True)

    def test_what_is_not_a_valid_graph_is_refused(self) -> None:
        import onnx

        short = self.subject()
        weight = short.graph.initializer[0]
        weight.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weight), weight.name))
        weight.raw_data = weight.raw_data[:-1]
        for wrong in (None, b"", Path("model.onnx"), short):
            with pytest.raises(InputError):
                base.run("step", self.make(), wrong)

    def test_an_operator_that_nobody_knows_is_an_error(self) -> None:
        subject = self.subject()
        _wrap_output(subject, "Mystery", "com.example")
        subject.opset_import.add(domain="com.example", version=1)
        with pytest.raises(RegError):
            run_and_compare("step", self.make(), subject, feeds=self.make().data)

    @pytest.mark.parametrize("part", ["function", "subgraph"])
    def test_a_part_of_a_graph_is_kept_right_or_refused(self, part: str) -> None:
        subject = self.subject()
        (_add_function if part == "function" else _add_branches)(subject)
        try:
            run_and_compare("step", self.make(), subject, feeds=self.make().data)
        except RegError as refused:
            assert refused.message


def run_and_compare(
    step: str,
    pass_: base.Pass[Any, Any],
    subject: Any,
    feeds: Sequence[Feed] | None = None,
) -> tuple[Any, Step]:
    """Run a pass, and compare the graph before and after. The step records the comparison as `parity`.

    `feeds` are the inputs of both graphs; by default, random inputs. Raises ConversionError if a graph does not run, or
    if the outputs differ.
    """
    pass_.requires(subject)
    bounds, tolerance = samples.index_bounds(subject), samples.tolerance_of(pass_, subject)
    parent = models.session(subject, f"the graph that {pass_.id} was given")
    after, record = base.run(step, pass_, subject)
    child = models.session(after, f"the result of {pass_.id}")
    feeds = samples.draw(after, bounds) if feeds is None else feeds
    expected = samples.all_outputs(parent, feeds, "the parent")
    outputs = samples.all_outputs(child, feeds, f"the result of {pass_.id}")
    distances = samples.compare(expected, outputs, pass_.id, tolerance)
    value, parity = record.to_json(), samples.parity(feeds, distances)
    return after, Step.from_json({**value, "result": {**value.get("result", {}), "parity": parity}})


def _wrap_output(subject: Any, operator: str, domain: str = "", **attributes: Any) -> None:
    import onnx

    name = subject.graph.output[0].name
    for names in (names for node in subject.graph.node for names in (node.input, node.output)):
        for index, value in enumerate(names):
            names[index] = "wrapped" if value == name else value
    subject.graph.node.append(
        onnx.helper.make_node(operator, ["wrapped"], [name], domain=domain, **attributes)
    )


def _add_function(subject: Any) -> None:
    import onnx

    header = f'<domain: "local", opset_import: ["" : {models.default_opset(subject)}]>'
    subject.functions.append(onnx.parser.parse_function(f"{header} Double (x) => (y) {{ y = Add(x, x) }}"))
    subject.opset_import.add(domain="local", version=1)
    _wrap_output(subject, "Double", "local")


def _add_branches(subject: Any) -> None:
    import onnx

    kind = subject.graph.output[0].type
    bodies = []
    for name in ("then", "else"):
        value = onnx.ValueInfoProto(name=f"{name}_value", type=kind)
        node = onnx.helper.make_node("Identity", ["wrapped"], [value.name])
        bodies.append(onnx.helper.make_graph([node], name, [], [value]))
    _wrap_output(subject, "If", then_branch=bodies[0], else_branch=bodies[1])
    subject.graph.node[-1].input[0] = "always"
    subject.graph.initializer.append(onnx.helper.make_tensor("always", onnx.TensorProto.BOOL, [], [True]))
