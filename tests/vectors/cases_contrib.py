"""Contrib operators: which releases of ONNX Runtime run them."""

from building import Json, States, artifact, onnx, ort, vector

STATES = States()
V = "1.0.0"
MINIMAL = {"build": "minimal", "operators": "com.microsoft;1;MatMulNBits"}

FIRST = {
    "Attention": "1.15",
    "MatMulNBits": "1.16",
    "MatMulNBits accuracy_level": "1.17",
    "MatMulNBits inputs=4": "1.17",
    "GroupQueryAttention": "1.18",
    "ai.onnx:DequantizeLinear Int4x2": "1.19",
    "ai.onnx:MatMul kernel=MLFloat16": "1.29",
    "GroupQueryAttention softcap": "1.20",
    "MatMulNBits MLFloat16": "1.20",
    "MatMulNBits bits=8": "1.23",
}
"""Typed in from docs/resolve.md."""


def before(release: str) -> str:
    return f"1.{int(release.partition('.')[2]) - 1}"


def recorded() -> list[Json]:
    """The vectors of each need: the first release that meets it, and the release before."""
    vectors = []
    for need, first in FIRST.items():
        state = STATES.one(f"needs {need}", onnx("model", contrib=[need]))
        vectors.append(vector(f"{first} has {need}", state, f"{V}/model", device={"ort": first}))
        if first != "1.15":
            rejected = [f"{V}/model contrib"]
            older = {"ort": before(first)}
            vectors.append(vector(f"{before(first)} lacks {need}", state, None, rejected, device=older))
    return vectors


def several() -> list[Json]:
    both = ["MatMulNBits", "MatMulNBits accuracy_level", "MatMulNBits bits=8"]
    fallback = STATES.one(
        "8-bit weights and full precision",
        onnx("small", precision="int8-weights", state="certified", size=10, contrib=both),
        onnx("large"),
    )
    unproven = STATES.one(
        "8-bit weights that nobody judged",
        artifact("small", "onnx-int8", size=10, precision="int8-weights", contrib=both),
        onnx("large"),
    )
    foreign = STATES.one("an operator of no release", onnx("model", contrib=["Imaginary"]))
    webgpu = STATES.one("contrib operators for WebGPU", artifact("model", "webgpu", contrib=["Imaginary"]))
    minimal = STATES.one("8-bit weights in ORT format", ort("model", contrib=both))
    full = STATES.one("contrib and a large file", onnx("model", contrib=["Imaginary"]))
    chosen, missed = f"{V}/model", [f"{V}/model contrib"]
    return [
        vector("every need counts", fallback, f"{V}/large", [f"{V}/small contrib"], device={"ort": "1.22.1"}),
        vector(
            "a release with every need",
            fallback,
            f"{V}/small",
            [f"{V}/large ranked-lower"],
            device={"ort": "1.23.0"},
        ),
        vector(
            "8-bit weights count as quantized",
            unproven,
            f"{V}/large",
            [f"{V}/small ranked-lower"],
            device={"ort": "1.31"},
        ),
        vector("no device, no contrib", fallback, f"{V}/small", [f"{V}/large ranked-lower"]),
        vector("an operator that no release has", foreign, None, missed, device={"ort": "1.31"}),
        vector("an operator that no release has, later", foreign, None, missed, device={"ort": "2.0"}),
        vector(
            "what runs on WebGPU only", webgpu, chosen, device={"ort": "1.31", "providers": ["CPU", "WebGPU"]}
        ),
        vector("contrib before operators", minimal, None, missed, device={"ort": "1.22", **MINIMAL}),
        vector(
            "operators after contrib",
            minimal,
            None,
            [f"{V}/model operators"],
            device={"ort": "1.23", **MINIMAL},
        ),
        vector(
            "space before contrib",
            full,
            None,
            [f"{V}/model space"],
            device={"ort": "1.31", "free_space": 1},
        ),
    ]


def unrecorded() -> list[Json]:
    """Contrib operators that an artifact has, and of which nothing is recorded."""
    state = STATES.one("contrib operators that are not recorded", onnx("model", domains=["com.microsoft"]))
    webgpu = STATES.one(
        "the same for WebGPU", artifact("model", "webgpu", opset=18, domains=["com.microsoft"])
    )
    device: Json = {"ort": "1.31", "providers": ["CPU", "WebGPU"]}
    return [
        vector("what is not recorded is not proven", state, None, [f"{V}/model contrib"], device=device),
        vector("what is not recorded, without a device", state, f"{V}/model"),
        vector("what is not recorded, on WebGPU", webgpu, f"{V}/model", device=device),
    ]


def vectors() -> list[Json]:
    return [*recorded(), *several(), *unrecorded()]
