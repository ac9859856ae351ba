"""Write rollout.json: the vectors of docs/rollouts.md, from cases whose outcomes are stated by hand or by plain arithmetic.

    python tests/vectors/make_rollout.py [--check]

Nothing of the code under test is used. With --check nothing is written; the exit status is 1 if the file differs.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from building import YANKED, Json, States, onnx, sha

FILE = Path(__file__).with_name("rollout.json")
SALT = "00112233445566778899aabbccddeeff"
OTHER = "ffeeddccbbaa99887766554433221100"
PERCENTS = [0.01, 0.1, 1, 2.5, 5, 20, 33.33, 50, 99.99, 100]


def seed(number: int) -> str:
    return hashlib.sha256(f"device {number}".encode()).hexdigest()


def share(salt: str, device: str) -> float:
    """The position of a device in percent."""
    return 100 * int.from_bytes(hashlib.sha256((salt + device).encode("ascii")).digest()[:4], "big") / 2**32


def admissions() -> list[Json]:
    """Devices spread over the whole range, and the two next to each border."""
    devices = [seed(number) for number in range(20_000)]
    cases = []
    for salt in (SALT, OTHER):
        shares = sorted((share(salt, device), device) for device in devices)
        for percent in PERCENTS:
            below = [pair for pair in shares if pair[0] < percent][-2:]
            above = [pair for pair in shares if pair[0] >= percent][:2]
            cases += [
                {"salt": salt, "seed": device, "percent": percent, "in": position < percent}
                for position, device in [*below, *above, *shares[:: len(shares) // 4]]
            ]
    return cases


def cohorts() -> list[Json]:
    phone = {
        "ort": "1.23",
        "name": "pixel",
        "platform": "android",
        "abi": "arm64-v8a",
        "ram": "4GB",
        "locale": "de-CH",
        "app_version": "3.10.0",
        "providers": ["CPU", "NNAPI"],
    }
    true = [
        "platform = android",
        "app_version >= 3.2.0",
        "app_version < 4.0.0 and abi ~ 'arm*'",
        "ort >= 1.23.0",
        "ort = 1.23.0",
        "locale in (de-CH, fr-CH)",
        "ram >= 3GiB",
        "NNAPI in providers",
        "build = full",
        "name = pixel and not platform = ios",
        "not free_space >= 1GB",
    ]
    false = [
        "platform = ios",
        "app_version >= 3.10.1",
        "ort > 1.23.0",
        "free_space >= 1GB",
        "CoreML in providers",
        "name = 'pixel 8'",
        "ram > 4GB",
    ]
    cases = [{"where": text, "device": phone, "in": True} for text in true]
    cases += [{"where": text, "device": phone, "in": False} for text in false]
    cases.append({"where": "app_version >= 1.0.0", "device": {"ort": "1.23"}, "in": False})
    cases.append({"where": "platform = android", "device": None, "in": False})
    errors = [
        "format = onnx-int8",
        "recall.PHONE > 0.9",
        "metric['sts/spearman'] > 0.8",
        "platform >= android",
        "app_version = soon",
    ]
    return [*cases, *({"where": text, "device": phone, "error": "input"} for text in errors)]


def questions() -> Json:
    states = States()
    versions: Any = {
        "1.0.0": ([onnx("model")], []),
        "2.0.0": ([onnx("model", contract=sha("new"))], []),
        "3.0.0": ([onnx("other")], []),
    }
    newest = ["3.0.0", "2.0.0", "1.0.0"]
    everybody, nobody = seed(1), seed(2)
    early, late = sorted((everybody, nobody), key=lambda device: share(SALT, device))
    percent = round((share(SALT, early) + share(SALT, late)) / 2)

    def state(name: str, marks: Json | None = None, **rollout: Any) -> str:
        states.many(name, versions, newest, channels={"stable": "1.0.0"}, marks=marks or {})
        manifest = states.lines[name]["versions"]["2.0.0"]["manifest"]
        value = {"to": "2.0.0", "manifest": manifest, "percent": percent, "salt": SALT, "seq": 95, **rollout}
        states.lines[name]["rollouts"] = {"stable": value}
        return name

    plain = state("a rollout")
    android = state("a rollout for Android", where="platform = android")
    old = states.many("no rollout", versions, newest, channels={"stable": "1.0.0"})
    device = {"ort": "1.23", "platform": "android"}

    def ask(name: str, where: str, chosen: str, rejected: list[str] | None = None, **asked: Any) -> Json:
        version, path = chosen.split("/")
        words = [line.split() for line in rejected or []]
        expect = {
            "version": version,
            "artifact": path,
            "rejected": [
                {"version": ref.split("/")[0], "artifact": ref.split("/")[1], "code": code}
                for ref, code in words
            ],
        }
        question = {"tag": "stable", "query": {}, "device": None, "seed": None, **asked}
        return {"name": name, "state": where, **question, "expect": expect}

    vectors = [
        ask("a device in the rollout", plain, "2.0.0/model", seed=early),
        ask("a device outside", plain, "1.0.0/model", seed=late),
        ask("a client without a seed stays", plain, "1.0.0/model"),
        ask("another channel's rollout is no rollout", old, "1.0.0/model", seed=early),
        ask("a question without a tag ignores rollouts", plain, "3.0.0/other", seed=late, tag=None),
        ask("a version is that version", plain, "1.0.0/model", seed=early, tag="1.0.0"),
        ask("of the cohort, in the rollout", android, "2.0.0/model", seed=early, device=device),
        ask("of the cohort, outside", android, "1.0.0/model", seed=late, device=device),
        ask(
            "not of the cohort",
            android,
            "1.0.0/model",
            seed=early,
            device={"ort": "1.23", "platform": "ios"},
        ),
        ask("a cohort is not met without a device", android, "1.0.0/model", seed=early),
        ask(
            "an app that does not understand the new release stays",
            plain,
            "1.0.0/model",
            ["2.0.0/model where"],
            seed=early,
            query={"where": "version != 2.0.0"},
        ),
        ask(
            "an app that understands only the new release, in the rollout",
            plain,
            "2.0.0/model",
            seed=early,
            query={"contract": sha("new")},
        ),
    ]
    bad = [
        {
            "name": f"a seed that is {label}",
            "state": plain,
            "tag": "stable",
            "query": {},
            "device": None,
            "seed": value,
        }
        for label, value in {"too short": "00", "in upper case": "A" * 64, "no hex": "g" * 64}.items()
    ]
    gone = state("a rollout of a yanked version", {"2.0.0": YANKED})
    bad_target = {
        "name": "a rollout that no log can have",
        "state": gone,
        "tag": "stable",
        "query": {},
        "device": None,
    }
    return {
        "states": states.lines,
        "vectors": [
            *vectors,
            *({**item, "expect": {"error": "input"}} for item in bad),
            {**bad_target, "seed": early, "expect": {"error": "not-found"}},
        ],
    }


def make() -> str:
    value = {
        "format": "onnxreg-rollout-vectors",
        "format_version": 1,
        "admissions": admissions(),
        "cohorts": cohorts(),
        **questions(),
    }
    lines = []
    for key, item in value.items():
        if isinstance(item, list):
            body = ",\n".join(json.dumps(entry) for entry in item)
            lines.append(f"{json.dumps(key)}: [\n{body}\n]")
        elif isinstance(item, dict):
            body = ",\n".join(f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in item.items())
            lines.append(f"{json.dumps(key)}: {{\n{body}\n}}")
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(item)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(FILE.read_text("utf-8") != make())
    FILE.write_text(make(), "utf-8")
