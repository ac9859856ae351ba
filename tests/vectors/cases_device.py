"""What a device loads and holds: releases of ONNX Runtime, providers, domains, memory."""

from building import COMPANIONS, Json, States, artifact, failing, file, onnx, ort, vector

STATES = States()
V = "1.0.0"
LOADS = {
    "1.15": (19, 9, 5),
    "1.16": (19, 9, 6),
    "1.17": (20, 9, 6),
    "1.18": (21, 10, 6),
    "1.19": (21, 10, 6),
    "1.20": (21, 10, 6),
    "1.21": (22, 10, 6),
    "1.22": (22, 10, 6),
    "1.23": (23, 11, 6),
    "1.24": (25, 13, 6),
    "1.25": (26, 13, 6),
    "1.26": (26, 13, 6),
    "1.27": (26, 13, 6),
    "1.28": (26, 13, 6),
    "1.29": (26, 13, 6),
    "1.30": (26, 13, 6),
    "1.31": (26, 13, 6),
}
"""The newest opset, IR version and ORT format that a release loads, typed in from docs/resolve.md."""


def releases() -> list[Json]:
    """In each state the newer an artifact the smaller it is, so that the newest that loads is chosen."""
    opsets, irs, numbers = range(17, 29), range(8, 15), range(4, 8)
    by_opset = STATES.one("opsets 17 to 28", *(onnx(f"{n}", opset=n, size=100 - n) for n in opsets))
    by_ir = STATES.one("IR versions 8 to 14", *(onnx(f"{n}", ir_version=n, size=100 - n) for n in irs))
    by_number = STATES.one("ORT formats 4 to 7", *(ort(f"{n}", ort_format=n, size=100 - n) for n in numbers))
    found = []
    for release, (opset, ir, number) in LOADS.items():
        device = {"ort": release}
        for what, state, given, code, oldest, newest in (
            ("opset", by_opset, opsets, "opset", 7, opset),
            ("IR version", by_ir, irs, "ir-version", 3, ir),
            ("ORT format", by_number, numbers, "ort-format", 5, number),
        ):
            rejected = [
                f"{V}/{n} {'ranked-lower' if oldest <= n <= newest else code}" for n in given if n != newest
            ]
            name = f"the newest {what} of {release}"
            found.append(vector(name, state, f"{V}/{newest}", rejected, device=device))
    return found


def versions() -> list[Json]:
    two = STATES.one("opset 26 and 18", onnx("new", opset=26, size=1), onnx("old", opset=18))
    new, old = [f"{V}/old ranked-lower"], [f"{V}/new opset"]
    unknown = STATES.one("no opset", onnx("model", opset=None))
    newer_ir = STATES.one("ORT format with a new IR", ort("model", ir_version=14))
    no_number = STATES.one("ORT format without a number", artifact("model", "ort-android"))
    foreign = STATES.one("for another runtime", artifact("model", "openvino-ir"))
    no_ir = STATES.one("no IR version", onnx("model"))
    right: Json = {"state": "certified", "ir_version": 9, "providers": ["NNAPI"]}
    faults: dict[str, Json] = {
        "precision": {"precision": "int8"},
        "not-certified": {"state": "unknown"},
        "opset": {"opset": 24},
        "ir-version": {"ir_version": 12},
        "domain": {"domains": ["com.acme"]},
        "provider": {"providers": ["CoreML"]},
    }
    alike = STATES.one(
        "alike but for one thing",
        *(onnx(code, **{**right, **wrong}) for code, wrong in faults.items()),
        onnx("right", **right),
    )
    chosen = f"{V}/model"
    return [
        vector("a patch release", two, f"{V}/old", old, device={"ort": "1.23.2"}),
        vector("minor numbers are numbers", two, f"{V}/new", new, device={"ort": "1.31"}),
        vector("a release of later days", two, f"{V}/new", new, device={"ort": "1.99"}),
        vector("a major release of later days", two, f"{V}/new", new, device={"ort": "2.0.0"}),
        vector("no device", two, f"{V}/new", new),
        vector(
            "each artifact is judged by itself",
            alike,
            f"{V}/right",
            [f"{V}/{code} {code}" for code in faults],
            query={"precision": "float32", "certified": True},
            device={"ort": "1.23", "providers": ["NNAPI"]},
        ),
        vector("an opset that nobody recorded", unknown, None, [f"{V}/model opset"], device={"ort": "1.31"}),
        vector("an opset that nobody asks for", unknown, chosen),
        vector("the IR version of ORT format is not looked at", newer_ir, chosen, device={"ort": "1.16"}),
        vector("an IR version that nobody recorded", no_ir, chosen, device={"ort": "1.16"}),
        vector(
            "ORT format without its number",
            no_number,
            None,
            [f"{V}/model ort-format"],
            device={"ort": "1.31"},
        ),
        vector("a format for another runtime", foreign, None, [f"{V}/model runtime"], device={"ort": "1.31"}),
        vector("a format for another runtime, without a device", foreign, chosen),
    ]


def providers() -> list[Json]:
    android = STATES.one("made for NNAPI", onnx("model", providers=["NNAPI", "XNNPACK"]))
    plain = STATES.one("made for nothing", onnx("model"))
    webgpu = STATES.one("for WebGPU", artifact("model", "webgpu"))
    named = STATES.one("for WebGPU by name", artifact("model", "webgpu", providers=["JSEP"]))
    chosen, missed = f"{V}/model", [f"{V}/model provider"]
    cases: list[tuple[str, str, list[str] | None, bool]] = [
        ("the CPU runs what was made for others", android, None, True),
        ("the CPU by name", android, ["CPU"], True),
        ("one of the providers", android, ["NNAPI"], True),
        ("the other of the providers", android, ["XNNPACK"], True),
        ("another provider without the CPU", android, ["CoreML"], False),
        ("another provider with the CPU", android, ["CoreML", "CPU"], True),
        ("the long name of a provider", android, ["NnapiExecutionProvider"], True),
        ("the long name of the CPU", plain, ["CPUExecutionProvider"], True),
        ("WASM is the CPU", plain, ["wasm"], True),
        ("no CPU and nothing that is named", plain, ["NNAPI"], False),
        ("no provider at all", plain, [], False),
        ("webgpu does not run on the CPU", webgpu, ["CPU"], False),
        ("webgpu does not run on the CPU that nobody named", webgpu, None, False),
        ("webgpu runs on WebGPU", webgpu, ["CPU", "WebGPU"], True),
        ("names are compared without case", webgpu, ["webgpu"], True),
        ("webgpu runs on what it names instead", named, ["WebGPU"], False),
        ("webgpu runs on what it names", named, ["jsep"], True),
    ]
    return [
        vector(
            name,
            state,
            chosen if fits else None,
            [] if fits else missed,
            device={"ort": "1.23"} | ({} if given is None else {"providers": given}),
        )
        for name, state, given, fits in cases
    ]


def domains() -> list[Json]:
    contrib = STATES.one(
        "contrib operators", onnx("model", domains=["ai.onnx.ml", "com.microsoft"], contrib=["Gelu"])
    )
    custom = STATES.one(
        "custom operators", onnx("model", domains=["com.acme", "com.microsoft"], contrib=["Gelu"])
    )
    internal = STATES.one("operators of one machine", ort("model", domains=["com.microsoft.nchwc"]))
    chosen, missed = f"{V}/model", [f"{V}/model domain"]
    return [
        vector("a full build has contrib operators", contrib, chosen, device={"ort": "1.23"}),
        vector("a full build lacks custom operators", custom, None, missed, device={"ort": "1.23"}),
        vector(
            "an app registers custom operators",
            custom,
            chosen,
            device={"ort": "1.23", "domains": ["com.acme"]},
        ),
        vector(
            "an app registers others",
            custom,
            None,
            missed,
            device={"ort": "1.23", "domains": ["com.acme.other"]},
        ),
        vector("operators of one kind of machine", internal, None, missed, device={"ort": "1.23"}),
    ]


def memory() -> list[Json]:
    state = STATES.one(
        "5,000 bytes of weights",
        onnx(
            "model",
            size=1000,
            files=[file("external-data", "data", 4000), file("report", "report.json", 70)],
        ),
        files=COMPANIONS,
    )
    chosen = f"{V}/model"
    cases: dict[str, tuple[Json, str | None]] = {
        "exactly the memory": ({"ram": 5000}, None),
        "a byte too little memory": ({"ram": 4999}, "ram"),
        "memory as a text": ({"ram": "5kB"}, None),
        "exactly the space": ({"free_space": 6070}, None),
        "a byte too little space": ({"free_space": 6069}, "space"),
        "space as a text": ({"free_space": "0.006069MB"}, "space"),
        "memory is tested before space": ({"ram": 0, "free_space": 0}, "ram"),
        "much of both": ({"ram": "8GiB", "free_space": "1TB"}, None),
        "what nothing depends on": (
            {"platform": "android", "abi": "arm64-v8a", "locale": "de-DE", "name": "x"},
            None,
        ),
        "null is as good as absent": ({"ram": None, "free_space": None, "operators": None}, None),
    }
    return [
        vector(
            name,
            state,
            None if code else chosen,
            [f"{V}/model {code}"] if code else [],
            device={"ort": "1.23", **given},
        )
        for name, (given, code) in cases.items()
    ]


def contexts() -> list[Json]:
    """A decoder keeps 10 bytes for each of at most 100 tokens, beside 5,000 bytes of weights."""
    cache = {"bytes_per_token": 10, "max_tokens": 100}
    weights: Json = {"size": 1000, "files": [file("external-data", "data", 4000)]}
    decoder = STATES.one("a decoder", onnx("model", **weights, kv_cache=cache))
    encoder = STATES.one("an encoder", onnx("model", **weights))
    longest = 2**53 - 1
    huge = STATES.one("a huge cache", onnx("model", kv_cache=dict.fromkeys(cache, longest)))
    two = STATES.one(
        "a long and a short decoder",
        onnx("long", size=1000, kv_cache={"bytes_per_token": 100, "max_tokens": 1000}),
        onnx("short", size=2000, kv_cache=cache),
    )
    cases: dict[str, tuple[str, Json, Json | None, str | None]] = {
        "the longest context, to the byte": (decoder, {}, {"ram": 6000}, None),
        "the longest context, a byte too little": (decoder, {}, {"ram": 5999}, "ram"),
        "the context of the query, to the byte": (decoder, {"context": 20}, {"ram": 5200}, None),
        "the context of the query, a byte too little": (decoder, {"context": 20}, {"ram": 5199}, "ram"),
        "no context is weights alone": (decoder, {"context": 0}, {"ram": 5000}, None),
        "a context that is null": (decoder, {"context": None}, {"ram": 5999}, "ram"),
        "the longest context by its number": (decoder, {"context": 100}, {"ram": "6kB"}, None),
        "a token more than the longest": (decoder, {"context": 101}, None, "context"),
        "the context is tested before the memory": (decoder, {"context": 101}, {"ram": 0}, "context"),
        "the recall is tested before the context": (
            decoder,
            {"context": 101, "min_recall": {"PHONE": 0.5}},
            None,
            "recall",
        ),
        "the context is tested before the expression": (
            decoder,
            {"context": 101, "where": "task = fill-mask"},
            None,
            "context",
        ),
        "memory without a limit": (decoder, {"context": 100}, {}, None),
        "no cache, and no context": (encoder, {}, {"ram": 5000}, None),
        "a context that nobody recorded": (encoder, {"context": 1}, None, "context"),
        "a context of nothing that nobody recorded": (encoder, {"context": 0}, None, "context"),
        "numbers beyond 2^53": (huge, {"context": longest}, {"ram": longest}, "ram"),
        "numbers beyond 2^53, the longest context": (huge, {}, {"ram": "9007TB"}, "ram"),
        "numbers beyond 2^53, a short context": (huge, {"context": 0}, {"ram": "1MB"}, None),
    }
    found = [
        vector(
            f"KV cache: {name}",
            state,
            None if code else f"{V}/model",
            [f"{V}/model {code}"] if code else [],
            query=query,
            device=None if given is None else {"ort": "1.23", **given},
        )
        for name, (state, query, given, code) in cases.items()
    ]
    device = {"ort": "1.23", "ram": 50_000}
    long, short = (f"{V}/{name}" for name in ("long", "short"))
    return [
        *found,
        vector("KV cache: the short one fits", two, short, [f"{long} ram"], device=device),
        vector(
            "KV cache: both fit",
            two,
            long,
            [f"{short} ranked-lower"],
            query={"context": 50},
            device=device,
        ),
        vector(
            "KV cache: the long one is long enough",
            two,
            long,
            [f"{short} context"],
            query={"context": 490},
            device=device,
        ),
        *(
            failing(f"KV cache: a context that is {what}", decoder, "input", query={"context": value})
            for what, value in {
                "negative": -1,
                "a text": "4096",
                "a fraction": 1.5,
                "a truth": True,
                "a list": [1],
            }.items()
        ),
    ]


def order() -> list[Json]:
    """One artifact that fails in every way; each case mends the first fault of the one before."""
    faults: list[tuple[str, Json]] = [
        ("runtime", {}),
        ("ort-format", {"format": "ort", "ort_format": 7}),
        ("opset", {"format": "ort", "ort_format": 6}),
        ("ir-version", {"format": "webgpu", "opset": 18}),
        ("domain", {"format": "webgpu", "opset": 18, "ir_version": 9}),
        ("provider", {"format": "webgpu", "opset": 18, "ir_version": 9, "domains": []}),
        ("ram", {"format": "onnx", "opset": 18, "ir_version": 9, "domains": []}),
        ("space", {"format": "onnx", "opset": 18, "ir_version": 9, "domains": [], "size": 1}),
    ]
    worst: Json = {
        "format": "openvino-ir",
        "opset": 30,
        "ir_version": 20,
        "domains": ["com.acme"],
        "size": 99,
    }
    return [
        vector(
            f"{code} is tested in its turn",
            STATES.one(f"fault {code}", artifact("model", **{**worst, **mended})),
            None,
            [f"{V}/model {code}"],
            device={"ort": "1.17", "ram": 10, "free_space": 10},
        )
        for code, mended in faults
    ]


def documents() -> list[Json]:
    """Devices that say nothing."""
    line = STATES.one("plain", onnx("model"))
    bad: dict[str, Json] = {
        "no release": {},
        "a release that is a number": {"ort": 1.23},
        "a release that is none": {"ort": "latest"},
        "a release with more words": {"ort": "1.23.2-rc.1"},
        "a release that is too old": {"ort": "1.14.1"},
        "a key that no device has": {"ort": "1.23", "memory": 5},
        "a build that there is not": {"ort": "1.23", "build": "tiny"},
        "a minimal build without operators": {"ort": "1.23", "build": "minimal"},
        "operators of a full build": {"ort": "1.23", "operators": "ai.onnx;13;Add"},
        "providers that are a text": {"ort": "1.23", "providers": "CPU"},
        "memory that is negative": {"ort": "1.23", "ram": -1},
        "memory of an unknown unit": {"ort": "1.23", "ram": "2 gigabytes"},
        "space that is a truth": {"ort": "1.23", "free_space": True},
    }
    return [failing(f"device: {name}", line, "input", device=device) for name, device in bad.items()]


def vectors() -> list[Json]:
    return [
        *releases(),
        *versions(),
        *providers(),
        *domains(),
        *memory(),
        *contexts(),
        *order(),
        *documents(),
    ]
