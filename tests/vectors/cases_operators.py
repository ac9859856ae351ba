"""Minimal builds: operators, opsets and types that an artifact needs and a build has."""

from building import Json, States, failing, needs, onnx, operators_digest, ort, vector

STATES = States()
SETS: dict[str, list[Json]] = {}
V = "1.0.0"
FLOAT = {"0": ["float"]}


def state_of(name: str, operators: list[Json] | None, **more: object) -> str:
    if operators is None:
        return STATES.one(name, ort("model"))
    digest = operators_digest(operators)
    SETS[digest] = operators
    return STATES.one(name, ort("model", operators=digest, **more))


def device(*lines: str) -> Json:
    return {"ort": "1.23", "build": "minimal", "operators": "\n".join(lines)}


PLAIN = ("ai.onnx", 13, "MatMul"), ("ai.onnx", 14, "Add"), ("com.microsoft", 1, "BiasGelu")
TYPED = (
    ("ai.onnx", 13, "MatMul", FLOAT, FLOAT),
    ("ai.onnx", 13, "Gather", {"0": ["float"], "1": ["int64_t"]}, FLOAT),
)
CONFIG = (
    'ai.onnx;13;Gather{"inputs": {"0": ["float"], "1": ["int64_t"]}},MatMul{"inputs": {"0": ["float"]}}',
    "ai.onnx;14;Add",
    "com.microsoft;1;BiasGelu",
)


def containment() -> list[Json]:
    plain = state_of("operators without types", needs(*PLAIN))
    fits = (
        ("exactly these operators", ["ai.onnx;13;MatMul", "ai.onnx;14;Add", "com.microsoft;1;BiasGelu"]),
        (
            "more operators",
            ["ai.onnx;13;MatMul,Erf", "ai.onnx;14;Add,Mul", "com.microsoft;1;BiasGelu,FusedMatMul"],
        ),
        ("several opsets in a line", ["ai.onnx;12,13,14;MatMul,Add", "com.microsoft;1;BiasGelu"]),
        (
            "several lines of a domain",
            ["ai.onnx;13;Erf", "ai.onnx;13;MatMul", "ai.onnx;14;Add", "com.microsoft;1;BiasGelu"],
        ),
        (
            "comments and empty lines",
            [
                "# made by a tool",
                "",
                "ai.onnx;13;MatMul",
                "  # more",
                "ai.onnx;14;Add",
                "com.microsoft;1;BiasGelu",
                "",
            ],
        ),
        ("spaces", ["  ai.onnx ; 13 , 14 ; MatMul , Add  ", "com.microsoft; 1; BiasGelu"]),
        ("all operators", ["!no_ops_specified_means_all_ops_are_required"]),
        (
            "types of operators that it does not use",
            [
                "ai.onnx;13;MatMul",
                'ai.onnx;14;Add,Sub{"inputs": {"0": ["double"]}}',
                "com.microsoft;1;BiasGelu",
            ],
        ),
    )
    lacks = (
        ("an operator", ["ai.onnx;13;Erf", "ai.onnx;14;Add", "com.microsoft;1;BiasGelu"]),
        ("an older opset", ["ai.onnx;9,14;MatMul,Add", "com.microsoft;1;BiasGelu"]),
        ("a newer opset", ["ai.onnx;14;MatMul,Add", "com.microsoft;1;BiasGelu"]),
        ("the domain", ["ai.onnx;13;MatMul", "ai.onnx;14;Add,BiasGelu"]),
        ("another case", ["ai.onnx;13;Matmul", "ai.onnx;14;Add", "com.microsoft;1;BiasGelu"]),
        ("everything", ["# nothing"]),
        ("all but what is listed", ["!no_ops_specified_means_all_ops_are_required", "ai.onnx;13;MatMul"]),
    )
    return [
        *(vector(f"a build with {name}", plain, f"{V}/model", device=device(*lines)) for name, lines in fits),
        *(
            vector(f"a build that lacks {name}", plain, None, [f"{V}/model operators"], device=device(*lines))
            for name, lines in lacks
        ),
    ]


def types() -> list[Json]:
    typed = state_of("operators with types", needs(*TYPED))
    bare = state_of("the same without types", needs(*(entry[:3] for entry in TYPED)))
    double = state_of(
        "with float and double", needs(("ai.onnx", 13, "MatMul", {"0": ["double", "float"]}, {}))
    )
    mul = 'MatMul{"inputs": {"0": ["float"]}}'
    base = 'ai.onnx;13;Gather{"inputs": {"0": ["float"], "1": ["int64_t"]}},'
    cases = (
        ("the types", typed, [base + mul], ""),
        ("more types", typed, [base + 'MatMul{"inputs": {"0": ["double", "float"]}}'], ""),
        ("another type", typed, [base + 'MatMul{"inputs": {"0": ["double"]}}'], "types"),
        ("no types at a position", typed, [base + 'MatMul{"inputs": {"0": []}}'], "types"),
        ("a type of an output", typed, [base + 'MatMul{"outputs": {"0": ["float"]}}'], ""),
        ("another type of an output", typed, [base + 'MatMul{"outputs": {"0": ["double"]}}'], "types"),
        (
            "a position that nothing is recorded of",
            typed,
            [base + 'MatMul{"inputs": {"2": ["float"]}}'],
            "types",
        ),
        (
            "another type of the second input",
            typed,
            ['ai.onnx;13;Gather{"inputs": {"1": ["int32_t"]}},' + mul],
            "types",
        ),
        ("operators without restriction", typed, ["ai.onnx;13;Gather,MatMul"], ""),
        ("no types of an artifact that records none", bare, ["ai.onnx;13;Gather,MatMul"], ""),
        ("types of an artifact that records none", bare, [base + mul], "types"),
        ("one type of two", double, ["ai.onnx;13;" + mul], "types"),
        ("both types", double, ['ai.onnx;13;MatMul{"inputs": {"0": ["float", "double"]}}'], ""),
        (
            "the last line's types, which lack one",
            double,
            ['ai.onnx;13;MatMul{"inputs": {"0": ["float", "double"]}}', "ai.onnx;9;" + mul],
            "types",
        ),
        (
            "the last line's types, which add one",
            double,
            ["ai.onnx;9;" + mul, 'ai.onnx;13;MatMul{"inputs": {"0": ["float", "double"]}}'],
            "",
        ),
        (
            "types kept by a line without any",
            double,
            ['ai.onnx;13;MatMul{"inputs": {"0": ["float"]}}', "ai.onnx;13;MatMul"],
            "types",
        ),
        ("the types of another domain", double, ["ai.onnx;13;MatMul", "com.microsoft;1;" + mul], ""),
        (
            "types for every operator",
            typed,
            ["!globally_allowed_types;float,int64_t", "ai.onnx;13;Gather,MatMul"],
            "",
        ),
        (
            "too few types for every operator",
            typed,
            ["!globally_allowed_types; float , bool", "ai.onnx;13;Gather,MatMul"],
            "types",
        ),
        (
            "types for every operator of an artifact that records none",
            bare,
            ["!globally_allowed_types;float,int64_t", "ai.onnx;13;Gather,MatMul"],
            "types",
        ),
        (
            "types for all operators there are",
            typed,
            ["!globally_allowed_types;float,int64_t", "!no_ops_specified_means_all_ops_are_required"],
            "",
        ),
        (
            "neither the types nor an operator",
            typed,
            ['ai.onnx;13;MatMul{"inputs": {"0": ["double"]}}'],
            "operators",
        ),
    )
    return [
        vector(
            f"a build with {name}",
            state,
            None if code else f"{V}/model",
            [f"{V}/model {code}"] if code else [],
            device=device(*lines),
        )
        for name, state, lines, code in cases
    ]


def one_hot() -> list[Json]:
    """OneHot is built for triples of types: indices, values, depth; inputs 0, 2 and 1."""
    state = state_of(
        "one-hot",
        needs(("ai.onnx", 11, "OneHot", {"0": ["int64_t"], "1": ["int32_t"], "2": ["float"]}, FLOAT)),
    )
    partly = state_of(
        "one-hot of unknown depth", needs(("ai.onnx", 11, "OneHot", {"0": ["int64_t"], "2": ["float"]}, {}))
    )
    right = 'ai.onnx;11;OneHot{"custom": [["float", "float", "int64_t"], ["int64_t", "float", "int32_t"]]}'
    wrong = 'ai.onnx;11;OneHot{"custom": [["int64_t", "int32_t", "float"]]}'
    return [
        vector("a build with the triple", state, f"{V}/model", device=device(right)),
        vector("a build with another triple", state, None, [f"{V}/model types"], device=device(wrong)),
        vector("a later line replaces triples", state, f"{V}/model", device=device(f"{wrong}\n{right}")),
        vector(
            "a later line takes triples away",
            state,
            None,
            [f"{V}/model types"],
            device=device(f"{right}\n{wrong}"),
        ),
        vector(
            "types of OneHot in another form take its triples away",
            state,
            None,
            [f"{V}/model types"],
            device=device(f'{right}\nai.onnx;11;OneHot{{"inputs": {{"0": ["int64_t"]}}}}'),
        ),
        vector("a triple that is not recorded", partly, None, [f"{V}/model types"], device=device(right)),
    ]


def candidates() -> list[Json]:
    nothing = state_of("operators that nobody recorded", None)
    graph = STATES.one("ONNX only", onnx("model"))
    typed = operators_digest(needs(*TYPED))
    custom = state_of("a custom operator", needs(("com.acme", 1, "Frobnicate")), domains=["com.acme"])
    several = STATES.one(
        "one that the build has",
        ort("large", operators=operators_digest(needs(*PLAIN)), size=9_000_000),
        ort("small", operators=typed, size=10),
        onnx("graph", size=1),
    )
    return [
        vector(
            "a minimal build loads no ONNX", graph, None, [f"{V}/model ort-format"], device=device(*CONFIG)
        ),
        vector(
            "operators that nobody recorded", nothing, None, [f"{V}/model operators"], device=device(*CONFIG)
        ),
        vector(
            "operators that nobody recorded, of a build with all",
            nothing,
            None,
            [f"{V}/model operators"],
            device=device("!no_ops_specified_means_all_ops_are_required"),
        ),
        vector("a full build asks for no operator set", nothing, f"{V}/model", device={"ort": "1.23"}),
        vector(
            "a minimal build with a custom operator",
            custom,
            f"{V}/model",
            device=device("com.acme;1;Frobnicate"),
        ),
        vector("a minimal build without it", custom, None, [f"{V}/model operators"], device=device(*CONFIG)),
        vector(
            "the best of those that the build has",
            several,
            f"{V}/small",
            [f"{V}/large types", f"{V}/graph ort-format"],
            device=device(*CONFIG),
        ),
        vector(
            "the one that the build has",
            several,
            f"{V}/large",
            [f"{V}/small operators", f"{V}/graph ort-format"],
            device=device("ai.onnx;13,14;MatMul,Add", "com.microsoft;1;BiasGelu"),
        ),
    ]


def documents() -> list[Json]:
    """Operator configs that ONNX Runtime's build would not take."""
    line = STATES.one("plain", ort("model"))
    bad = {
        "two parts": ["ai.onnx;13"],
        "four parts": ["ai.onnx;13;Add;Mul"],
        "an opset that is a word": ["ai.onnx;x;Add"],
        "types that end early": ['ai.onnx;13;Add{"inputs": {"0": ["float"]}'],
        "types that are no JSON": ["ai.onnx;13;Add{float}"],
        "positions that are an array": ['ai.onnx;13;Add{"inputs": ["float"]}'],
        "an operator without a name": ["ai.onnx;13;,Add"],
        "globally allowed types twice": ["!globally_allowed_types;float", "!globally_allowed_types;bool"],
        "both kinds of types": [
            "!globally_allowed_types;float",
            'ai.onnx;13;Add{"inputs": {"0": ["float"]}}',
        ],
    }
    return [
        failing(f"an operator config with {name}", line, "input", device=device(*lines))
        for name, lines in bad.items()
    ]


def vectors() -> list[Json]:
    return [*containment(), *types(), *one_hot(), *candidates(), *documents()]
