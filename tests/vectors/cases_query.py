"""What a query asks, and how the best is chosen."""

from building import COMPANIONS, Json, States, artifact, failing, file, onnx, sha, vector

STATES = States()
V = "1.0.0"


def lower(*paths: str) -> list[str]:
    return [f"{V}/{path} ranked-lower" for path in paths]


def formats() -> list[Json]:
    order = ["onnx-int8", "ort-android", "onnx-android", "ort", "onnx"]
    found = []
    for place, better in enumerate(order):
        for worse in order[place + 1 :]:
            state = STATES.one(
                f"{worse} before {better}",
                artifact("worse", worse, size=10),
                artifact("better", better, size=999_999),
            )
            found.append(vector(f"{better} is preferred to {worse}", state, f"{V}/better", lower("worse")))
            found.append(
                vector(
                    f"{worse} is preferred to {better} where it is asked for first",
                    state,
                    f"{V}/worse",
                    lower("better"),
                    query={"formats": [worse, better]},
                )
            )
    rare = STATES.one(
        "rare formats",
        artifact("z", "zebra", size=1),
        artifact("y", "yak", size=2),
        artifact("o", "onnx", size=3),
    )
    found += [
        vector("a format that is not listed comes last", rare, f"{V}/o", lower("z", "y")),
        vector(
            "of formats that are not listed the first by name",
            rare,
            f"{V}/y",
            [f"{V}/z ranked-lower", f"{V}/o where"],
            query={"where": "format != onnx"},
        ),
        vector(
            "one format",
            rare,
            f"{V}/z",
            [f"{V}/y format", f"{V}/o format"],
            query={"formats": ["zebra"]},
        ),
        vector(
            "a format that nothing has",
            rare,
            None,
            [f"{V}/z format", f"{V}/y format", f"{V}/o format"],
            query={"formats": ["webgpu"]},
        ),
        vector("no formats are all formats", rare, f"{V}/o", lower("z", "y"), query={"formats": []}),
        vector(
            "a format that is named twice counts where it is named first",
            rare,
            f"{V}/y",
            [f"{V}/z ranked-lower", f"{V}/o format"],
            query={"formats": ["yak", "zebra", "yak"]},
        ),
    ]
    return found


def proof() -> list[Json]:
    """What was quantized and is not certified comes after the rest of its state, unless formats or a precision are named."""
    found = []
    for precision in ("int8", "int4", "uint8", "mixed"):
        state = STATES.one(
            f"unproven {precision}",
            artifact("small", "onnx-int8", precision=precision, size=10),
            artifact("large", "zebra", precision="float32", size=999),
        )
        found.append(
            vector(f"{precision} that nobody certified comes last", state, f"{V}/large", lower("small"))
        )
    for precision in ("float16", "bfloat16"):
        state = STATES.one(
            f"small {precision}",
            artifact("small", "onnx-int8", precision=precision, size=10),
            artifact("large", "onnx", precision="float32", size=999),
        )
        found.append(vector(f"{precision} needs no proof", state, f"{V}/small", lower("large")))
    unproven = STATES.one(
        "unproven",
        artifact("small", "onnx-int8", precision="int8", size=10),
        artifact("large", "onnx", precision="float32", size=999),
        artifact("refused", "onnx", precision="float32", size=9, state="refused"),
    )
    refused = STATES.one(
        "both refused",
        artifact("small", "onnx-int8", precision="int8", size=10, state="refused"),
        artifact("large", "onnx", precision="float32", size=999, state="refused"),
    )
    certified = STATES.one(
        "proven",
        artifact("small", "onnx-int8", precision="int8", size=10, state="certified"),
        artifact("large", "onnx", precision="float32", size=999, state="certified"),
    )
    asked = {"formats": ["onnx-int8", "onnx"]}
    return [
        *found,
        vector("the state comes before proof", unproven, f"{V}/large", lower("small", "refused")),
        vector(
            "no proof is better than a refusal",
            unproven,
            f"{V}/small",
            [f"{V}/large too-large", *lower("refused")],
            query={"max_size": 1100},
        ),
        vector("of refused ones the full precision", refused, f"{V}/large", lower("small")),
        vector("a certificate is proof", certified, f"{V}/small", lower("large")),
        vector(
            "formats in order need no proof", unproven, f"{V}/small", lower("large", "refused"), query=asked
        ),
        vector(
            "a precision that is named needs no proof",
            unproven,
            f"{V}/small",
            [f"{V}/large precision", f"{V}/refused precision"],
            query={"precision": "int8"},
        ),
        vector(
            "no formats name none", unproven, f"{V}/large", lower("small", "refused"), query={"formats": []}
        ),
        vector(
            "a device names nothing",
            unproven,
            f"{V}/large",
            lower("small", "refused"),
            device={"ort": "1.23"},
        ),
    ]


def searches() -> list[Json]:
    """The winner of a search comes first in its state, unless formats are named."""
    state = STATES.one(
        "a search",
        artifact("half", "onnx-android", precision="float16", state="certified", size=10),
        artifact("small", "onnx", precision="mixed", state="certified", size=999_999, preferred=True),
    )
    unproven = STATES.one(
        "a search whose winner is not certified",
        artifact("whole", "onnx"),
        artifact("small", "onnx", precision="mixed", size=10, preferred=True),
    )
    asked = {"formats": ["onnx-android", "onnx"]}
    return [
        vector("the winner of a search is preferred to a format", state, f"{V}/small", lower("half")),
        vector(
            "a format that is named is preferred to a winner", state, f"{V}/half", lower("small"), query=asked
        ),
        vector("a winner needs proof", unproven, f"{V}/whole", lower("small")),
    ]


def ranking() -> list[Json]:
    states = STATES.one(
        "all states",
        onnx("refused", state="refused", size=1),
        onnx("unknown", state="unknown", size=2),
        onnx("certified", state="certified", size=3),
    )
    doubtful = STATES.one(
        "no certified", onnx("refused", state="refused", size=1), onnx("unknown", state="unknown", size=2)
    )
    strange = STATES.one(
        "a state of later days",
        onnx("refused", state="refused", size=1),
        onnx("later", state="suspended", size=2),
    )
    sizes = STATES.one("three sizes", onnx("c", size=30), onnx("a", size=10), onnx("b", size=20))
    equal = STATES.one("equal sizes", onnx("z", size=10), onnx("a", size=10))
    heavy = STATES.one(
        "a heavy sidecar",
        onnx("light head", size=10, files=[file("external-data", "data", 100)]),
        onnx("whole", size=50),
    )
    mixed = STATES.one(
        "state against format",
        artifact("int8", "onnx-int8", size=1, state="unknown"),
        artifact("plain", "onnx", size=9, state="certified"),
    )
    return [
        vector("certified comes first, however large", states, f"{V}/certified", lower("refused", "unknown")),
        vector("unknown comes before refused", doubtful, f"{V}/unknown", lower("refused")),
        vector("a state that is not known ranks as unknown", strange, f"{V}/later", lower("refused")),
        vector(
            "refused is chosen where nothing else answers",
            doubtful,
            f"{V}/refused",
            [f"{V}/unknown too-large"],
            query={"max_size": 1001},
        ),
        vector("the smallest of equals", sizes, f"{V}/a", lower("c", "b")),
        vector("of equal sizes the one that is listed first", equal, f"{V}/z", lower("a")),
        vector("a sidecar counts", heavy, f"{V}/whole", lower("light head"), size=1050),
        vector("the state comes before the format", mixed, f"{V}/plain", lower("int8")),
        vector(
            "the state comes before the format that is asked for first",
            mixed,
            f"{V}/plain",
            lower("int8"),
            query={"formats": ["onnx-int8", "onnx"]},
        ),
    ]


def filters() -> list[Json]:
    both = STATES.one(
        "two precisions", onnx("full", precision="float32"), onnx("half", precision="float16", size=500)
    )
    states = STATES.one(
        "one certified", onnx("refused", state="refused"), onnx("unknown"), onnx("sure", state="certified")
    )
    return [
        vector("a precision", both, f"{V}/full", [f"{V}/half precision"], query={"precision": "float32"}),
        vector(
            "a precision that nothing has",
            both,
            None,
            [f"{V}/full precision", f"{V}/half precision"],
            query={"precision": "int4"},
        ),
        vector(
            "only certified",
            states,
            f"{V}/sure",
            [f"{V}/refused not-certified", f"{V}/unknown not-certified"],
            query={"certified": True},
        ),
        vector(
            "nothing certified",
            both,
            None,
            [f"{V}/full not-certified", f"{V}/half not-certified"],
            query={"certified": True},
        ),
        vector("certified is not asked for", both, f"{V}/half", lower("full"), query={"certified": False}),
        vector(
            "the first requirement that fails is the reason",
            both,
            None,
            [f"{V}/full format", f"{V}/half format"],
            query={"formats": ["ort"], "precision": "int4", "certified": True, "max_size": 0},
        ),
        vector(
            "precision is tested before certification",
            both,
            None,
            [f"{V}/full not-certified", f"{V}/half precision"],
            query={"precision": "float32", "certified": True},
        ),
        vector(
            "certification is tested before size",
            both,
            None,
            [f"{V}/full not-certified", f"{V}/half not-certified"],
            query={"certified": True, "max_size": 1},
        ),
    ]


def sizes() -> list[Json]:
    plain = STATES.one("a million bytes", onnx("model", size=999_000))
    mebi = STATES.one("a mebibyte", onnx("model", size=2**20 - 1000))
    sidecar = STATES.one(
        "with external data", onnx("model", size=1000, files=[file("external-data", "data", 8000)])
    )
    shared = STATES.one(
        "a sidecar that is a companion too",
        onnx("model", size=1000, files=[file("config", "other.json", 100, "config.json")]),
    )
    twice = STATES.one(
        "equal companions",
        onnx("model", size=1000),
        files=[file("tokenizer", "a.json", 700, "same"), file("tokenizer", "b.json", 700, "same")],
    )
    self_same = STATES.one(
        "a sidecar equal to the model", onnx("model", size=1000, files=[file("copy", "copy", 1000, "model")])
    )
    bare = STATES.one("no companions", onnx("model", size=1000), files=[])
    missed = [f"{V}/model too-large"]
    chosen = f"{V}/model"
    return [
        vector("exactly the most", plain, chosen, query={"max_size": 1_000_000}, size=1_000_000),
        vector("one byte more than the most", plain, None, missed, query={"max_size": 999_999}),
        vector("MB is ten to the sixth", plain, chosen, query={"max_size": "1MB"}, size=1_000_000),
        vector("a share of a unit", plain, None, missed, query={"max_size": "0.999999MB"}),
        vector("kB", plain, chosen, query={"max_size": "1000kB"}),
        vector("B", plain, None, missed, query={"max_size": "999999B"}),
        vector("a text without a unit is bytes", plain, chosen, query={"max_size": "1000000"}),
        vector("MiB is two to the twentieth", mebi, chosen, query={"max_size": "1MiB"}, size=2**20),
        vector("MB is less than MiB", mebi, None, missed, query={"max_size": "1MB"}),
        vector("half a MiB", mebi, None, missed, query={"max_size": "0.5MiB"}),
        vector("KiB", mebi, chosen, query={"max_size": "1024KiB"}),
        vector("GB and TB", mebi, chosen, query={"max_size": "0.001TB"}),
        vector("sidecars count", sidecar, chosen, query={"max_size": 10_000}, size=10_000),
        vector("sidecars count to the last byte", sidecar, None, missed, query={"max_size": 9_999}),
        vector("companions count", bare, chosen, query={"max_size": 1000}, size=1000),
        vector("an equal file is fetched once", shared, chosen, query={"max_size": 2000}, size=2000),
        vector("equal companions are fetched once", twice, chosen, query={"max_size": 1700}, size=1700),
        vector("a copy of the model is fetched once", self_same, chosen, query={"max_size": 2000}, size=2000),
        vector("nothing fits into nothing", bare, None, missed, query={"max_size": 0}),
    ]


def recalls() -> list[Json]:
    measured = STATES.one(
        "measured recalls",
        onnx("good", size=30, recall={"PHONE": 0.97, "NAME": 0.9}),
        onnx("poor", size=20, recall={"PHONE": 0.9, "NAME": 0.99}),
        onnx("bare", size=10),
    )
    return [
        vector(
            "a least recall",
            measured,
            f"{V}/good",
            [f"{V}/poor recall", f"{V}/bare recall"],
            query={"min_recall": {"PHONE": 0.95}},
        ),
        vector(
            "exactly the least",
            measured,
            f"{V}/good",
            [f"{V}/poor recall", f"{V}/bare recall"],
            query={"min_recall": {"PHONE": 0.97}},
        ),
        vector(
            "a little more than the least",
            measured,
            None,
            [f"{V}/good recall", f"{V}/poor recall", f"{V}/bare recall"],
            query={"min_recall": {"PHONE": 0.9700001}},
        ),
        vector(
            "every label must be good enough",
            measured,
            None,
            [f"{V}/good recall", f"{V}/poor recall", f"{V}/bare recall"],
            query={"min_recall": {"PHONE": 0.95, "NAME": 0.95}},
        ),
        vector(
            "a label that was not measured does not pass, not even 0",
            measured,
            None,
            [f"{V}/good recall", f"{V}/poor recall", f"{V}/bare recall"],
            query={"min_recall": {"EMAIL": 0}},
        ),
        vector(
            "0 passes whatever was measured",
            measured,
            f"{V}/poor",
            [f"{V}/good ranked-lower", f"{V}/bare recall"],
            query={"min_recall": {"PHONE": 0}},
        ),
        vector(
            "no labels ask nothing", measured, f"{V}/bare", lower("good", "poor"), query={"min_recall": {}}
        ),
        vector(
            "size is tested before recall",
            measured,
            None,
            [f"{V}/good too-large", f"{V}/poor recall", f"{V}/bare recall"],
            query={"min_recall": {"PHONE": 0.95}, "max_size": 1025},
        ),
    ]


def wheres() -> list[Json]:
    two = STATES.one(
        "two to ask about",
        artifact(
            *("small", "onnx-int8", 10, "unknown", "int8"),
            opset=17,
            recall={"PHONE": 0.9},
            metrics={"sts/spearman": 0.83, "sts/spearman/loss": 0.002},
        ),
        artifact("large", "onnx", size=5000, state="certified", opset=20, providers=["NNAPI"]),
        files=COMPANIONS,
        task="token-classification",
    )
    cases = {
        "opset >= 18": ("large", "small"),
        "opset < 18": ("small", "large"),
        "precision = int8": ("small", "large"),
        "precision in (float32, float16)": ("large", "small"),
        "not certified": ("small", "large"),
        "certified and size > 1kB": ("large", "small"),
        "size <= 10B or opset = 21": ("small", "large"),
        "recall.PHONE >= 0.9": ("small", "large"),
        "metric['sts/spearman'] >= 0.82": ("small", "large"),
        "metric['sts/spearman/loss'] < 0.01 and metric['character_recall/PHONE'] >= 0.9": ("small", "large"),
        "not metric['sts/spearman'] >= 0.82": ("large", "small"),
        "NNAPI in providers": ("large", "small"),
    }
    found = [
        vector(f"where {text}", two, f"{V}/{one}", [f"{V}/{other} where"], query={"where": text})
        for text, (one, other) in cases.items()
    ]
    both = [f"{V}/small where", f"{V}/large where"]
    return [
        *found,
        vector(
            "where a fact of the version",
            two,
            f"{V}/large",
            lower("small"),
            query={"where": "task = token-classification"},
        ),
        vector("where another task", two, None, both, query={"where": "task = fill-mask"}),
        vector(
            "where a version",
            two,
            f"{V}/large",
            lower("small"),
            query={"where": "version >= 1.0.0 and newest"},
        ),
        vector("where the model is another", two, None, both, query={"where": "name = acme/other"}),
        *downloads(),
    ]


def downloads() -> list[Json]:
    """`download_size` and `max_size` are one number: everything that has to be fetched, equal files once."""
    heavy = STATES.one(
        "shared and own files",
        artifact("light", size=50, files=[file("golden", "g", 7), file("labels", "c", 100, "config.json")]),
        artifact("heavy", size=52, files=[file("external-data", "h", 7)]),
        files=COMPANIONS,
    )
    return [
        vector(
            f"the whole download counts in {' '.join(map(str, asked.values()))}",
            heavy,
            f"{V}/light",
            [f"{V}/heavy {code}"],
            query=asked,
            size=1057,
        )
        for code, asked in {
            "too-large": {"max_size": 1057},
            "where": {"where": "download_size <= 1057"},
        }.items()
    ] + [evidence()]


def evidence() -> Json:
    """Certificates and item scores are companions that no artifact needs to run: no download has them."""
    proven = STATES.one(
        "with evidence",
        onnx("model", size=50),
        files=[
            *COMPANIONS,
            file("certificate", "certificates/model.json", 3000),
            file("item-scores", "certificates/model.accuracy.csv", 9000),
        ],
    )
    return vector("evidence is not downloaded", proven, f"{V}/model", [], query={"max_size": 1050}, size=1050)


def contracts() -> list[Json]:
    old, new = sha("labels of 1"), sha("labels of 2")
    grown = STATES.many(
        "labels that changed",
        {
            "1.0.0": ([onnx("model", contract=old), onnx("unrecorded")], []),
            "2.0.0": ([onnx("model", contract=new), onnx("other", contract=sha("other"))], []),
        },
        ["2.0.0", "1.0.0"],
        channels={"stable": "2.0.0"},
    )
    first = ["1.0.0/unrecorded contract"]
    newer = ["2.0.0/model contract", "2.0.0/other contract"]
    return [
        vector(
            "an app gets the release that it was written for",
            grown,
            "1.0.0/model",
            [*newer, *first],
            query={"contract": old},
        ),
        vector(
            "a list of one contract",
            grown,
            "2.0.0/model",
            ["2.0.0/other contract"],
            query={"contract": [new]},
        ),
        vector(
            "an app that knows both gets the newest",
            grown,
            "2.0.0/model",
            ["2.0.0/other contract"],
            query={"contract": [old, new]},
        ),
        vector("a channel with another contract", grown, None, newer, query={"contract": old}, tag="stable"),
        vector(
            "a contract that is not recorded is not met",
            grown,
            None,
            [*newer, "1.0.0/model contract", *first],
            query={"contract": sha("unknown")},
        ),
        vector(
            "the contract is asked before the format",
            grown,
            None,
            [*newer, "1.0.0/model format", *first],
            query={"contract": old, "formats": ["ort"]},
        ),
        vector(
            "a contract that is null is as good as absent",
            grown,
            "2.0.0/model",
            ["2.0.0/other ranked-lower"],
            query={"contract": None},
        ),
        vector(
            "no contracts are all contracts",
            grown,
            "2.0.0/model",
            ["2.0.0/other ranked-lower"],
            query={"contract": []},
        ),
        *(
            failing(f"a contract that is {label}", grown, "input", query={"contract": value})
            for label, value in {
                "no digest": "1.0.0",
                "a number": 7,
                "a list of numbers": [7],
                "in upper case": new.upper(),
            }.items()
        ),
    ]


def vectors() -> list[Json]:
    return [
        *formats(),
        *proof(),
        *searches(),
        *ranking(),
        *filters(),
        *sizes(),
        *recalls(),
        *wheres(),
        *contracts(),
    ]
