"""Pipelines: several graphs of one version that work together, each under a name."""

from building import Json, States, artifact, onnx, vector

STATES = States()
V = "1.0.0"


def vectors() -> list[Json]:
    ocr = STATES.one(
        "a pipeline",
        onnx("det", size=50, member="detector"),
        artifact("det-int8", "onnx-int8", size=20, member="detector"),
        onnx("rec", size=10, member="recognizer"),
    )
    plain = STATES.one("no pipeline", onnx("model"), artifact("int8", "onnx-int8"))
    grown = STATES.many(
        "a pipeline after a single graph",
        {"1.0.0": ([onnx("model")], []), "2.0.0": ([onnx("det", member="detector")], [])},
        ["2.0.0", "1.0.0"],
    )
    every = [f"{V}/{path} member" for path in ("det", "det-int8", "rec")]
    return [
        vector("no stage stands for the others", ocr, None, every),
        vector(
            "the best of a stage",
            ocr,
            f"{V}/det-int8",
            [f"{V}/det ranked-lower", f"{V}/rec member"],
            query={"member": "detector"},
        ),
        vector("a stage with one artifact", ocr, f"{V}/rec", every[:2], query={"member": "recognizer"}),
        vector("a stage that is not there", ocr, None, every, query={"member": "classifier"}),
        vector(
            "the member is asked before the format",
            ocr,
            f"{V}/det",
            [f"{V}/det-int8 format", f"{V}/rec member"],
            query={"member": "detector", "formats": ["onnx"]},
        ),
        vector(
            "a member that is null is as good as absent",
            plain,
            f"{V}/int8",
            [f"{V}/model ranked-lower"],
            query={"member": None},
        ),
        vector(
            "a model without stages has no member",
            plain,
            None,
            [f"{V}/model member", f"{V}/int8 member"],
            query={"member": "detector"},
        ),
        vector(
            "an older release answers if the newest is a pipeline",
            grown,
            "1.0.0/model",
            ["2.0.0/det member"],
        ),
        vector(
            "an older release without the stage is not asked",
            grown,
            "2.0.0/det",
            [],
            query={"member": "detector"},
        ),
    ]
