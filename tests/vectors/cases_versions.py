"""Which versions are candidates, with and without a tag."""

from building import COMPANIONS, YANKED, Json, States, failing, gone, onnx, ort, sha, vector

STATES = States()


def fallback() -> list[Json]:
    small = ([onnx("model.onnx", size=10, state="certified", opset=18)], COMPANIONS)
    large = ([onnx("model.onnx", size=99, opset=20)], COMPANIONS)
    future = ([onnx("model.onnx", size=5, opset=26)], COMPANIONS)
    line = STATES.many(
        "three releases",
        {"1.0.0": small, "1.1.0": large, "2.0.0": future},
        ["2.0.0", "1.1.0", "1.0.0"],
        {"stable": "1.0.0"},
    )
    only = STATES.many(
        "releases that differ in form",
        {"1.0.0": ([ort("model.ort")], COMPANIONS), "1.1.0": ([onnx("model.onnx")], COMPANIONS)},
        ["1.1.0", "1.0.0"],
    )
    return [
        vector("the newest release", line, "2.0.0/model.onnx"),
        vector(
            "an older release is not preferred for being smaller or certified",
            line,
            "1.1.0/model.onnx",
            ["2.0.0/model.onnx opset"],
            device={"ort": "1.18"},
        ),
        vector(
            "an older release where the newer ones do not load",
            line,
            "1.0.0/model.onnx",
            ["2.0.0/model.onnx opset", "1.1.0/model.onnx opset"],
            device={"ort": "1.16"},
        ),
        vector(
            "an older release where the newer ones are not certified",
            line,
            "1.0.0/model.onnx",
            ["2.0.0/model.onnx not-certified", "1.1.0/model.onnx not-certified"],
            query={"certified": True},
        ),
        vector(
            "an older release where the newer ones lack the format",
            only,
            "1.0.0/model.ort",
            ["1.1.0/model.onnx format"],
            query={"formats": ["ort"]},
        ),
        vector(
            "nothing in any release",
            line,
            None,
            ["2.0.0/model.onnx format", "1.1.0/model.onnx format", "1.0.0/model.onnx format"],
            query={"formats": ["ort"]},
        ),
        vector(
            "a query is tested before a device",
            line,
            None,
            ["2.0.0/model.onnx opset", "1.1.0/model.onnx where", "1.0.0/model.onnx where"],
            query={"where": "newest"},
            device={"ort": "1.16"},
        ),
        vector("a version that is named", line, "1.1.0/model.onnx", tag="1.1.0"),
        vector("a channel", line, "1.0.0/model.onnx", tag="stable"),
        vector(
            "a version that is named gives way to no other",
            line,
            None,
            ["2.0.0/model.onnx opset"],
            tag="2.0.0",
            device={"ort": "1.18"},
        ),
        vector(
            "a channel gives way to no other version",
            line,
            None,
            ["1.0.0/model.onnx format"],
            tag="stable",
            query={"formats": ["ort"]},
        ),
        vector(
            "where a channel",
            line,
            "1.0.0/model.onnx",
            ["2.0.0/model.onnx where", "1.1.0/model.onnx where"],
            query={"where": "stable in channels"},
        ),
        failing("a version that is not there", line, "not-found", tag="3.0.0"),
        failing("a channel that is not there", line, "not-found", tag="beta"),
    ]


def withheld() -> list[Json]:
    one = ([onnx("model.onnx")], COMPANIONS)
    line = STATES.many(
        "marked versions",
        {
            "0.9.0": one,
            "1.0.0": one,
            "1.1.0": one,
            "1.2.0": one,
            "1.3.0": one,
            "1.4.0": one,
            "2.0.0-rc.1": one,
        },
        ["2.0.0-rc.1", "1.0.0"],
        {"next": "2.0.0-rc.1", "old": "1.2.0"},
        {
            "0.9.0": YANKED,
            "1.1.0": YANKED,
            "1.2.0": gone("expired"),
            "1.3.0": gone("purged"),
            "1.4.0": gone("dropped"),
        },
    )
    above = ["2.0.0-rc.1 prerelease", "1.3.0 purged", "1.2.0 expired", "1.1.0 yanked"]
    early = STATES.many("only pre-releases", {"1.0.0-a": one, "1.0.0-b": one}, ["1.0.0-b", "1.0.0-a"])
    order = STATES.many(
        "ten after nine", {"1.9.0": one, "1.10.0": one, "1.8.0": one}, ["1.10.0", "1.9.0", "1.8.0"]
    )
    pinned = STATES.many("pinned", {"1.0.0": one}, ["1.0.0"], {}, {"1.0.0": {"pinned": True}})
    return [
        vector("what is passed over above the answer", line, "1.0.0/model.onnx", above),
        vector(
            "what is passed over where nothing answers",
            line,
            None,
            [*above, "1.0.0/model.onnx format"],
            query={"formats": ["ort"]},
        ),
        vector("a pre-release by its tag", line, "2.0.0-rc.1/model.onnx", tag="2.0.0-rc.1"),
        vector("a pre-release by a channel", line, "2.0.0-rc.1/model.onnx", tag="next"),
        failing("a yanked version", line, "not-found", tag="1.1.0"),
        failing("an expired version", line, "not-found", tag="1.2.0"),
        failing("a version that was taken down", line, "not-found", tag="1.3.0"),
        failing("a dropped version", line, "not-found", tag="1.4.0"),
        failing("a channel whose version has expired", line, "not-found", tag="old"),
        vector("nothing but pre-releases", early, None, ["1.0.0-b prerelease", "1.0.0-a prerelease"]),
        vector("numbers are compared as numbers", order, "1.10.0/model.onnx"),
        vector(
            "rejections stand newest version first",
            order,
            None,
            ["1.10.0/model.onnx format", "1.9.0/model.onnx format", "1.8.0/model.onnx format"],
            query={"formats": ["ort"]},
        ),
        vector("a pin changes nothing", pinned, "1.0.0/model.onnx"),
    ]


def holdings() -> list[Json]:
    """A registry that holds only some artifacts of a version says so in the version's entry."""
    two = ([onnx("large", size=10), onnx("small", size=5)], COMPANIONS)
    part = STATES.many("held in part", {"1.0.0": two}, ["1.0.0"], {}, {"1.0.0": {"held": ["large"]}})
    older = STATES.many(
        "an older one held whole",
        {"1.0.0": two, "1.1.0": two},
        ["1.1.0", "1.0.0"],
        {},
        {"1.1.0": {"held": ["large"]}},
    )
    return [
        vector("what is held", part, "1.0.0/large", ["1.0.0/small not-held"]),
        vector(
            "a query is tested before what is held",
            part,
            None,
            ["1.0.0/large too-large", "1.0.0/small not-held"],
            query={"max_size": 1005},
        ),
        vector(
            "what is held is tested before a device",
            part,
            None,
            ["1.0.0/large provider", "1.0.0/small not-held"],
            device={"ort": "1.23", "providers": []},
        ),
        vector(
            "an older release where what would fit of the newer one is not held",
            older,
            "1.0.0/small",
            ["1.1.0/large too-large", "1.1.0/small not-held", "1.0.0/large too-large"],
            query={"max_size": 1005},
        ),
    ]


def evaluated_later() -> list[Json]:
    """A refusal after the fact wins over the summary; no other later verdict changes anything."""
    two = ([onnx("good", size=9, state="certified"), onnx("plain", size=5)], COMPANIONS)
    refused = {"attested": {sha("good"): "refused"}}
    line = STATES.many("refused later", {"1.0.0": two}, ["1.0.0"], {}, {"1.0.0": refused})
    bytes_alone = STATES.many("refused bytes", {"1.0.0": two}, ["1.0.0"], refused=[sha("good")])
    lifted = {"attested": {sha("plain"): "certified", sha("good"): "unknown"}}
    again = STATES.many("certified later", {"1.0.0": two}, ["1.0.0"], {}, {"1.0.0": lifted})
    return [
        vector("a refusal after the fact ranks last", line, "1.0.0/plain", ["1.0.0/good ranked-lower"]),
        vector(
            "a refusal after the fact is no certificate",
            line,
            None,
            ["1.0.0/good not-certified", "1.0.0/plain not-certified"],
            query={"certified": True},
        ),
        vector(
            "bytes that were refused in another version are refused in this one",
            bytes_alone,
            "1.0.0/plain",
            ["1.0.0/good ranked-lower"],
        ),
        vector(
            "where sees the refusal",
            line,
            "1.0.0/plain",
            ["1.0.0/good ranked-lower"],
            query={"where": "not certified"},
        ),
        vector(
            "a certificate after the fact lifts nothing",
            again,
            "1.0.0/good",
            ["1.0.0/plain not-certified"],
            query={"certified": True},
        ),
    ]


def derived() -> list[Json]:
    """`newest` is not believed: the releases follow from `versions`."""
    release = ([onnx("model.onnx", opset=18)], COMPANIONS)
    versions = dict.fromkeys(("1.0.0", "1.1.0", "1.2.0-rc.1", "1.1.0+b"), release)
    lies = {
        "is in another order": ["1.0.0", "1.1.0", "1.1.0+b", "1.2.0-rc.1"],
        "is short": ["1.0.0"],
        "is empty": [],
        "names what is not there": ["9.0.0"],
        "is of another type": "1.0.0",
    }
    found = []
    for lie, newest in lies.items():
        line = STATES.many(f"newest {lie}", versions, [*versions])
        STATES.lines[line]["newest"] = newest
        found.append(vector(f"newest {lie}", line, "1.1.0+b/model.onnx", ["1.2.0-rc.1 prerelease"]))
    line = STATES.many("newest is absent", versions, [*versions])
    del STATES.lines[line]["newest"]
    return [*found, vector("newest is absent", line, "1.1.0+b/model.onnx", ["1.2.0-rc.1 prerelease"])]


def documents() -> list[Json]:
    """Queries that say nothing."""
    line = STATES.one("plain", onnx("model.onnx"))
    bad = {
        "a key that no query has": {"format": "onnx"},
        "formats that are a text": {"formats": "onnx"},
        "a precision that is a number": {"precision": 8},
        "certified that is a text": {"certified": "yes"},
        "a negative size": {"max_size": -1},
        "a size with a strange unit": {"max_size": "1Mb"},
        "a size of no whole bytes": {"max_size": "1.5B"},
        "a size beyond 2^53": {"max_size": "9007199254740992"},
        "a size with a sign": {"max_size": "+1MB"},
        "a size with a space": {"max_size": "1 MB"},
        "a size that is no whole number": {"max_size": 1.5},
        "a recall above 1": {"min_recall": {"PHONE": 1.1}},
        "a recall that is a text": {"min_recall": {"PHONE": "0.9"}},
        "recalls that are an array": {"min_recall": ["PHONE"]},
        "more formats than a query may name": {"formats": [f"format-{number}" for number in range(101)]},
        "one format, named too often": {"formats": ["onnx"] * 101},
        "more recalls than a query may name": {"min_recall": {f"LABEL{number}": 0 for number in range(101)}},
        "an expression that ends early": {"where": "opset >="},
        "an expression about what is not there": {"where": "colour = blue"},
    }
    most = {"formats": [*(f"format-{number}" for number in range(99)), "onnx"]}
    recalls = {"min_recall": {f"LABEL{number}": 0 for number in range(100)}}
    return [
        *(failing(name, line, "input", query=query) for name, query in bad.items()),
        vector("as many formats as a query may name", line, "1.0.0/model.onnx", query=most),
        vector("as many recalls as a query may name", line, None, ["1.0.0/model.onnx recall"], query=recalls),
    ]


def vectors() -> list[Json]:
    return [*fallback(), *withheld(), *holdings(), *evaluated_later(), *derived(), *documents()]
