"""The tests that every graph pass of onnxreg must pass. Other packages can test their passes with them:

    class TestMyPass(PassContract):
        def make(self):
            return MyPass(strength=2)

        def subject(self):
            return onnx_ir.from_onnx_text(...)

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
        """Return a new small graph (`onnx_ir.Model`). The pass must change some of its weights."""
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
        assert models.to_proto(first) == models.to_proto(second)

    def test_what_is_not_a_valid_graph_is_refused(self) -> None:
        invalid = self.subject()
        invalid.graph[0].op_type = "Mystery"
        for wrong in (None, b"", Path("model.onnx"), models.to_proto(self.subject()), invalid):
            with pytest.raises(InputError):
                base.run("step", self.make(), wrong)

    def test_an_operator_that_nobody_knows_is_an_error(self) -> None:
        subject = self.subject()
        _wrap_output(subject, "Mystery", "com.example")
        subject.opset_imports["com.example"] = 1
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
    step: str, pass_: base.Pass[Any, Any], subject: Any, feeds: Sequence[Feed] | None = None
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


def _wrap_output(subject: Any, operator: str, domain: str = "", **attributes: Any) -> Any:
    import onnx_ir as ir

    value = subject.graph.outputs[0]
    output = ir.Value(name=value.name, type=value.type, shape=value.shape)
    value.name = "wrapped"
    node = ir.node(operator, [value], attributes, domain=domain, outputs=[output])
    subject.graph.append(node)
    subject.graph.outputs[0] = output
    return node


def _add_function(subject: Any) -> None:
    import onnx
    import onnx_ir as ir

    header = f'<domain: "local", opset_import: ["" : {models.default_opset(subject)}]>'
    function = ir.from_proto(onnx.parser.parse_function(f"{header} Double (x) => (y) {{ y = Add(x, x) }}"))
    subject.functions[function.identifier()] = function
    subject.opset_imports["local"] = 1
    _wrap_output(subject, "Double", "local")


def _add_branches(subject: Any) -> None:
    import numpy as np
    import onnx_ir as ir

    value = subject.graph.outputs[0]
    bodies: dict[str, Any] = {}
    for name in ("then", "else"):
        output = ir.Value(name=f"{name}_value", type=value.type, shape=value.shape)
        node = ir.node("Identity", [value], outputs=[output])
        bodies[f"{name}_branch"] = ir.Graph([], [output], nodes=[node], name=name)
    branch = _wrap_output(subject, "If", "", **bodies)
    branch.replace_input_with(0, models.store(subject.graph, "always", np.array([True])))
