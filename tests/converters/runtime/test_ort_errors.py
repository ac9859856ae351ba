"""What ONNX Runtime says, without codes, source lines and paths, and whole where it matters."""

from collections.abc import Sequence
from pathlib import Path

import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from onnxreg.converters.runtime.sessions import MAX_MESSAGE_CHARS, load_session, with_reason
from onnxreg.schema.core.errors import ConversionError


def graph(node: onnx.NodeProto, initializers: Sequence[TensorProto] = (), opset: int = 17) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])]
    made = helper.make_graph([node], "g", inputs, outputs, initializer=list(initializers))
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def weights(**fields: object) -> TensorProto:
    return TensorProto(name="/bert/w", data_type=TensorProto.FLOAT, dims=[4], **fields)


ADD = helper.make_node("Add", ["x", "/bert/w"], ["y"])
GONE = {
    "data_location": TensorProto.EXTERNAL,
    "external_data": [onnx.StringStringEntryProto(key="location", value="gone.data")],
}


@pytest.mark.parametrize("as_bytes", [True, False])
@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (graph(helper.make_node("Constant", [], ["y"], name="/bert/Constant")), "/bert/Constant"),
        (graph(ADD, [weights(raw_data=b"ab")]), "/bert/w"),
        (
            graph(helper.make_node("Relu", ["x"], ["y"]), opset=999),
            "official support for domain ai.onnx is till",
        ),
        (graph(ADD, [weights(**GONE)]), "gone.data"),
    ],
)
def test_a_graph_that_does_not_load(
    model: onnx.ModelProto, reason: str, as_bytes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "the  models" / "x failed: y"
    place.mkdir(parents=True)
    monkeypatch.chdir(place)
    (place / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ConversionError) as caught:
        load_session(model.SerializeToString() if as_bytes else place / "m.onnx")
    message = caught.value.message
    assert reason in message
    assert message.startswith(f"ONNX Runtime cannot load {'the model' if as_bytes else 'm.onnx'}: ")
    assert not any(part in message for part in ("ONNXRuntimeError", ".cc:", str(tmp_path), "x failed"))
    assert len(message) <= MAX_MESSAGE_CHARS + len(" ... ")


def test_paths_above_the_graph_and_long_reasons(tmp_path: Path) -> None:
    source = tmp_path / "jane" / "model" / "m.onnx"
    error = ort.capi.onnxruntime_pybind11_state.Fail(
        f'at "{tmp_path / "jane" / "up.data"}" {"so " * 300}the end'
    )
    message = with_reason("it failed", error, source)
    assert message.startswith('it failed: at "up.data" so so') and message.endswith("so so the end")
