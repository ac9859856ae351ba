"""Resolving once more, the simplest way: plain JSON in, plain JSON out, nothing shared with the code under test.

It is slow and reads only what the vectors hold: well-formed documents, and the expressions of `WHERE`.
"""

import json
import re
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]

RELEASES = [
    ((1, 15), 19, 9, 5),
    ((1, 16), 19, 9, 6),
    ((1, 17), 20, 9, 6),
    ((1, 18), 21, 10, 6),
    ((1, 21), 22, 10, 6),
    ((1, 23), 23, 11, 6),
    ((1, 24), 25, 13, 6),
    ((1, 25), 26, 13, 6),
]
FIRST = {
    "Attention": (1, 15),
    "Gelu": (1, 15),
    "MatMulNBits": (1, 16),
    "MatMulNBits accuracy_level": (1, 17),
    "MatMulNBits inputs=4": (1, 17),
    "MatMulNBits MLFloat16": (1, 20),
    "MatMulNBits bits=8": (1, 23),
    "GroupQueryAttention": (1, 18),
    "GroupQueryAttention softcap": (1, 20),
    "ai.onnx:DequantizeLinear Int4x2": (1, 19),
    "ai.onnx:MatMul kernel=MLFloat16": (1, 29),
}
"""The rows of contrib operators that the vectors use."""
UNITS = {"": 1, "B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}

WHERE: dict[str, Callable[[Json, Json, str, Json], bool]] = {
    "format != onnx": lambda a, *_: a["format"] != "onnx",
    "opset >= 18": lambda a, *_: a["opset"] >= 18,
    "opset < 18": lambda a, *_: a["opset"] < 18,
    "precision = int8": lambda a, *_: a["precision"] == "int8",
    "precision in (float32, float16)": lambda a, *_: a["precision"] in ("float32", "float16"),
    "not certified": lambda a, *_: a["state"] != "certified",
    "certified and size > 1kB": lambda a, *_: a["state"] == "certified" and a["size"] > 1000,
    "size <= 10B or opset = 21": lambda a, *_: a["size"] <= 10 or a["opset"] == 21,
    "recall.PHONE >= 0.9": lambda a, *_: a.get("recall", {}).get("PHONE", -1) >= 0.9,
    "metric['sts/spearman'] >= 0.82": lambda a, *_: a.get("metrics", {}).get("sts/spearman", -1) >= 0.82,
    "not metric['sts/spearman'] >= 0.82": lambda a, *_: a.get("metrics", {}).get("sts/spearman", -1) < 0.82,
    "metric['sts/spearman/loss'] < 0.01 and metric['character_recall/PHONE'] >= 0.9": lambda a, *_: (
        a.get("metrics", {}).get("sts/spearman/loss", 1) < 0.01
        and a.get("recall", {}).get("PHONE", -1) >= 0.9
    ),
    "NNAPI in providers": lambda a, *_: "NNAPI" in a.get("providers", []),
    "task = token-classification": lambda _, s, *__: s.get("task") == "token-classification",
    "task = fill-mask": lambda _, s, *__: s.get("task") == "fill-mask",
    "version >= 1.0.0 and newest": lambda _, __, v, state: order(v) >= order("1.0.0") and newest(state) == v,
    "name = acme/other": lambda _, __, ___, state: state["name"] == "acme/other",
    "download_size <= 1057": lambda a, s, *_: download(a, s) <= 1057,
    "newest": lambda _, __, v, state: newest(state) == v,
    "stable in channels": lambda _, __, v, state: state["channels"].get("stable", {}).get("version") == v,
}


def order(version: str) -> tuple[Any, ...]:
    numbers, _, pre = version.partition("+")[0].partition("-")
    return (*map(int, numbers.split(".")), pre == "", pre)


def releases(state: Json) -> list[str]:
    """The four newest that are neither yanked nor gone, whatever the state says of them."""
    entries = state["versions"]
    found = [
        v for v in entries if not {"yanks", "gone"} & entries[v].keys() and "-" not in v.partition("+")[0]
    ]
    return sorted(found, key=lambda v: (order(v), entries[v]["seq"]), reverse=True)[:4]


def newest(state: Json) -> str | None:
    found = releases(state)
    return found[0] if found else None


def number_of_bytes(value: int | str) -> float:
    if isinstance(value, int):
        return value
    digits = value.rstrip("kKMGTiB")
    return round(float(digits) * UNITS[value[len(digits) :]])


def expected(vector: Json, states: Json, sets: Json) -> Json:
    """What docs/resolve.md says: {"version", "artifact", "size", "rejected"} or {"error"}."""
    state, device, tag = states[vector["state"]], vector["device"], vector["tag"]
    query = {key: value for key, value in vector["query"].items() if value is not None}
    entries = state["versions"]
    if tag is None:
        candidates = releases(state)
    else:
        version = state["channels"][tag]["version"] if tag in state["channels"] else tag
        if version not in entries or "yanks" in entries[version] or "gone" in entries[version]:
            return {"error": "not-found"}
        candidates = [version]
    rejected: list[Json] = []
    answer: Json = {"version": None, "artifact": None, "size": None}
    last = None
    for version in candidates:
        last = version
        summary = state["summaries"][version]
        fitting = []
        refused = [key for key, word in entries[version].get("attested", {}).items() if word == "refused"]
        refused += state.get("refused", [])
        for place, stated in enumerate(summary["artifacts"]):
            artifact = stated | ({"state": "refused"} if stated["digest"] in refused else {})
            size = download(artifact, summary)
            code = fault_of_query(artifact, size, query, summary, version, state)
            if code is None and artifact["path"] not in entries[version].get("held", [artifact["path"]]):
                code = "not-held"
            code = code or (
                fault_of_device(artifact, size, device, sets, query) if device is not None else None
            )
            rejected.append(
                {"version": version, "artifact": artifact["path"], "code": code or "ranked-lower"}
            )
            if code is None:
                fitting.append((*rank(artifact, query), size, place, artifact["path"]))
        if fitting:
            path = min(fitting)[-1]
            size = min(fitting)[-3]
            rejected = [r for r in rejected if (r["version"], r["artifact"]) != (version, path)]
            answer = {"version": version, "artifact": path, "size": size}
            break
    if tag is None:
        for version, entry in entries.items():
            how = entry["gone"]["how"] if "gone" in entry else "yanked" if "yanks" in entry else None
            how = how or ("prerelease" if "-" in version else None)
            if how and how != "dropped" and (last is None or order(version) > order(last)):
                rejected.append({"version": version, "artifact": None, "code": how})
    rejected.sort(key=lambda r: order(r["version"]), reverse=True)
    return {**answer, "rejected": rejected}


def download(artifact: Json, summary: Json) -> int:
    every = {artifact["digest"]: artifact["size"]}
    companions = [file for file in summary["files"] if file["role"] not in ("certificate", "item-scores")]
    for file in [*artifact.get("files", []), *companions]:
        every[file["digest"]] = file["size"]
    return sum(every.values())


def rank(artifact: Json, query: Json) -> tuple[Any, ...]:
    wanted = query.get("formats") or ["onnx-int8", "ort-android", "onnx-android", "ort", "onnx"]
    state = {"certified": 0, "refused": 2}.get(artifact["state"], 1)
    full = artifact["precision"] in ("float32", "float16", "bfloat16")
    chosen = query.get("formats") or query.get("precision")
    later = 0 if full or chosen or artifact["state"] == "certified" else 1
    other = 0 if query.get("formats") or artifact.get("preferred") else 1
    if artifact["format"] in wanted:
        return state, later, other, wanted.index(artifact["format"]), ""
    return state, later, other, 99, artifact["format"]


def fault_of_query(a: Json, size: int, query: Json, summary: Json, version: str, state: Json) -> str | None:
    if query.get("member") != a.get("member"):
        return "member"
    contracts = query.get("contract") or []
    if contracts and a.get("contract") not in ([contracts] if isinstance(contracts, str) else contracts):
        return "contract"
    if query.get("formats") and a["format"] not in query["formats"]:
        return "format"
    if "precision" in query and a["precision"] != query["precision"]:
        return "precision"
    if query.get("certified") and a["state"] != "certified":
        return "not-certified"
    if "max_size" in query and size > number_of_bytes(query["max_size"]):
        return "too-large"
    for label, least in query.get("min_recall", {}).items():
        if label not in a.get("recall", {}) or a["recall"][label] < least:
            return "recall"
    if "context" in query and query["context"] > a.get("kv_cache", {"max_tokens": -1})["max_tokens"]:
        return "context"
    if "where" in query and not WHERE[query["where"]](a, summary, version, state):
        return "where"
    return None


def fault_of_device(a: Json, size: int, device: Json, sets: Json, query: Json) -> str | None:
    device = {key: value for key, value in device.items() if value is not None}
    wanted = tuple(int(part) for part in device["ort"].split(".")[:2])
    _, opset, ir, newest_format = [row for row in RELEASES if row[0] <= wanted][-1]
    in_ort_format = "ort_format" in a or a["format"] in ("ort", "ort-android")
    minimal = device.get("build") == "minimal"
    if a["format"] == "openvino-ir":
        return "runtime"
    if minimal and not in_ort_format:
        return "ort-format"
    if in_ort_format and not 5 <= a.get("ort_format", 0) <= newest_format:
        return "ort-format"
    if a.get("opset", 999) > opset:
        return "opset"
    if not in_ort_format and a.get("ir_version", 0) > ir:
        return "ir-version"
    built_in = {"ai.onnx", "ai.onnx.ml", "com.microsoft", *device.get("domains", [])}
    if not minimal and set(a.get("domains", [])) - built_in:
        return "domain"
    runs_on = a.get("providers", [])
    runs_on = (runs_on or ["webgpu"]) if a["format"] == "webgpu" else [*runs_on, "cpu"]
    if not {plain(name) for name in runs_on} & {plain(name) for name in device.get("providers", ["CPU"])}:
        return "provider"
    external = sum(file["size"] for file in a.get("files", []) if file["role"] == "external-data")
    cache = a.get("kv_cache", {"bytes_per_token": 0, "max_tokens": 0})
    external += cache["bytes_per_token"] * query.get("context", cache["max_tokens"])
    if a["size"] + external > number_of_bytes(device.get("ram", 10**15)):
        return "ram"
    if size > number_of_bytes(device.get("free_space", 10**15)):
        return "space"
    if any(FIRST.get(need, (99, 0)) > wanted for need in contrib_needs(a)):
        return "contrib"
    return fault_of_operators(a, device["operators"], sets) if minimal else None


def contrib_needs(a: Json) -> list[str]:
    """The recorded needs; operators of which nothing is recorded are as one that no release has."""
    if a["format"] == "webgpu":
        return []
    needs: list[str] = a.get("contrib", [])
    return needs or (["unrecorded"] if "com.microsoft" in a.get("domains", []) else [])


def plain(name: str) -> str:
    name = re.sub("executionprovider$", "", name.lower())
    return "cpu" if name == "wasm" else name


def fault_of_operators(a: Json, config: str, sets: Json) -> str | None:
    if "operators" not in a:
        return "operators"
    build: set[tuple[str, int, str]] = set()
    types: Json = {}
    everywhere = None
    every_operator = False
    for line in map(str.strip, config.split("\n")):
        if line.startswith("!globally"):
            everywhere = [name.strip() for name in line.split(";")[1].split(",")]
        elif line.startswith("!no_ops"):
            every_operator = True
        elif line and not line.startswith("#"):
            domain, opsets, rest = (part.strip() for part in line.split(";"))
            for found in re.finditer(r"([A-Za-z]+)\s*(\{.*?\}(?=,[A-Za-z ]|$))?", rest):
                for opset in opsets.split(","):
                    build.add((domain, int(opset), found[1]))
                if found[2]:
                    types[domain, found[1]] = json.loads(found[2])
    needs = sets[a["operators"]]
    for need in needs:
        if (need["domain"], need["opset"], need["name"]) not in build and not (every_operator and not build):
            return "operators"
    return "types" if any(wrong_types(need, types, everywhere) for need in needs) else None


def wrong_types(need: Json, types: Json, everywhere: list[str] | None) -> bool:
    sides = {side: need.get(side, {}) for side in ("inputs", "outputs")}
    if everywhere is not None:
        seen = [name for side in sides.values() for names in side.values() for name in names]
        return not seen or not set(seen) <= set(everywhere)
    allowed = types.get((need["domain"], need["name"]), {})
    if "custom" in allowed or (allowed and need["name"] == "OneHot"):
        inputs = sides["inputs"]
        return not any(
            all(inputs.get(str(place), []) == [name] for place, name in zip((0, 2, 1), triple, strict=True))
            for triple in allowed.get("custom", [])
        )
    for side, seen_at in sides.items():
        for position, names in allowed.get(side, {}).items():
            seen = seen_at.get(position, [])
            if not seen or not set(seen) <= set(names):
                return True
    return False
