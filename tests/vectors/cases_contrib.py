"""Contrib operators: which releases of ONNX Runtime run them, recorded or derived from the operator set."""

from building import Json, States, artifact, needs, onnx, operators_digest, ort, vector

STATES = States()
SETS: dict[str, list[Json]] = {}
V = "1.0.0"
HALF, BYTES = ["MLFloat16"], ["uint8_t"]
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


def derived() -> list[Json]:
    """Versions of before the key: their operator sets name operators, inputs and types, and no attributes."""
    inputs: Json = {"0": ["float"], "1": BYTES, "2": ["float"]}
    sets: dict[str, tuple[Json, str, str, str]] = {
        "4-bit weights": (inputs, "int4", "1.16", "1.15"),
        "weights of unknown bits": (inputs, "mixed", "1.23", "1.22"),
        "zero points": ({**inputs, "3": BYTES}, "int4", "1.17", "1.16"),
        "float16": ({**inputs, "2": HALF}, "int4", "1.20", "1.19"),
    }
    vectors = []
    for name, (types, precision, first, older) in sets.items():
        operators = needs(("com.microsoft", 1, "MatMulNBits", types, {"0": ["float"]}))
        digest = operators_digest(operators)
        SETS[digest] = operators
        more: Json = {"operators": digest, "domains": ["com.microsoft"], "precision": precision}
        state = STATES.one(f"an old summary: {name}", onnx("model", **more))
        vectors += [
            vector(f"an old summary, {first}: {name}", state, f"{V}/model", device={"ort": first}),
            vector(
                f"an old summary, {older}: {name}",
                state,
                None,
                [f"{V}/model contrib"],
                device={"ort": older},
            ),
        ]
    half: Json = {"0": HALF, "1": HALF}
    operators = needs(("com.microsoft", 1, "SkipLayerNormalization", half, {"0": HALF}))
    digest = operators_digest(operators)
    SETS[digest] = operators
    more = {"operators": digest, "domains": ["com.microsoft"], "precision": "float16"}
    cast = STATES.one("float16 in ONNX", onnx("model", **more))
    stored = STATES.one("float16 in ORT format", ort("model", **more))
    vectors += [
        vector("1.19 casts float16", cast, f"{V}/model", device={"ort": "1.19"}),
        vector(
            "1.19 casts nothing in ORT format", stored, None, [f"{V}/model contrib"], device={"ort": "1.19"}
        ),
        vector("1.20 has the kernel for float16", stored, f"{V}/model", device={"ort": "1.20"}),
    ]
    operators = needs(("ai.onnx", 13, "MatMul"), ("com.microsoft", 1, "Attention"))
    digest = operators_digest(operators)
    SETS[digest] = operators
    untyped = STATES.one(
        "an old summary without types", onnx("model", operators=digest, domains=["com.microsoft"])
    )
    return [
        *vectors,
        vector("an old summary without types", untyped, f"{V}/model", device={"ort": "1.15"}),
        vector("an old summary without a device", untyped, f"{V}/model"),
    ]


def vectors() -> list[Json]:
    return [*recorded(), *several(), *derived()]
