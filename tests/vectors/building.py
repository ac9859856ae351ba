"""The parts that vectors are put together from, as plain JSON. Nothing of the code under test is used here."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

Json = dict[str, Any]
NOTHING: Mapping[str, Any] = MappingProxyType({})
NAME = "acme/pii"


def sha(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def file(role: str, path: str, size: int, content: str = "") -> Json:
    """A file; two with the same `content` are the same blob."""
    return {"role": role, "path": path, "digest": sha(content or path), "size": size}


COMPANIONS = [file("config", "config.json", 100), file("tokenizer", "tokenizer.json", 900)]
"""1,000 bytes that every artifact needs, unless a case says otherwise."""


def artifact(
    path: str,
    format: str = "onnx",
    size: int = 1_000_000,
    state: str = "unknown",
    precision: str = "float32",
    opset: int | None = 18,
    **more: Any,
) -> Json:
    """An artifact's summary; keys in `more` are those of docs/format.md."""
    value = {
        "format": format,
        "precision": precision,
        "path": path,
        "digest": sha(path),
        "size": size,
        "state": state,
        "opset": opset,
        **more,
    }
    return {key: item for key, item in value.items() if item is not None}


def onnx(path: str, **more: Any) -> Json:
    return artifact(path, "onnx", **more)


def ort(path: str, **more: Any) -> Json:
    return artifact(path, "ort", **{"ort_format": 6} | more)


class States:
    """The state lines of one group, by name."""

    def __init__(self) -> None:
        self.lines: dict[str, Json] = {}

    def one(
        self, name: str, *artifacts: Json, files: Sequence[Json] = tuple(COMPANIONS), **facts: str
    ) -> str:
        """A model with one version, 1.0.0."""
        return self.many(name, {"1.0.0": (artifacts, list(files))}, ["1.0.0"], facts=facts)

    def many(
        self,
        name: str,
        versions: dict[str, tuple[Iterable[Json], list[Json]]],
        newest: list[str],
        channels: Mapping[str, str] = NOTHING,
        marks: Mapping[str, Json] = NOTHING,
        facts: Mapping[str, str] = NOTHING,
        refused: Sequence[str] = (),
    ) -> str:
        """A model with several versions. `marks` are further keys of a version's entry, such as its yanks."""
        summaries: Json = {}
        entries: Json = {}
        for seq, (version, (artifacts, files)) in enumerate(versions.items(), 1):
            manifest = sha(f"{name} {version}")
            entries[version] = {"manifest": manifest, "size": 500, "seq": seq, **marks.get(version, {})}
            if version in newest or version in channels.values():
                summaries[version] = {
                    "manifest": manifest,
                    "size": 500,
                    "artifacts": list(artifacts),
                    "files": files,
                    **facts,
                }
        held = {
            tag: {"version": version, "manifest": sha(f"{name} {version}"), "seq": 90}
            for tag, version in channels.items()
        }
        self.lines[name] = {
            "registry": "0123456789abcdef0123456789abcdef",
            "name": NAME,
            "seq": 99,
            "head": sha("head"),
            "channels": held,
            "versions": entries,
            "newest": newest,
            "summaries": summaries,
            "segments": [],
            **({"refused": list(refused)} if refused else {}),
        }
        return name


YANKED = {"yanks": [sha("yank")]}


def gone(how: str) -> Json:
    return {"gone": {"how": how, "event": sha("event")}}


def needs(*operators: tuple[str, int, str] | tuple[str, int, str, Json, Json]) -> list[Json]:
    """An operator set: domain, since-version and name, then the types of inputs and outputs if they are recorded."""
    found = []
    for domain, opset, name, *types in operators:
        entry: Json = {"domain": domain, "name": name, "opset": opset}
        entry |= {side: given for side, given in zip(("inputs", "outputs"), types, strict=False) if given}
        found.append(entry)
    return found


def operators_digest(operators: list[Json]) -> str:
    """The digest of the blob: canonical JSON, which for these texts and small numbers is sorted and without spaces."""
    return sha(json.dumps(operators, sort_keys=True, separators=(",", ":")))


def vector(
    name: str,
    state: str,
    chosen: str | None,
    rejected: Iterable[str] = (),
    *,
    query: Json | None = None,
    device: Any = None,
    tag: str | None = None,
    size: int | None = None,
) -> Json:
    """`chosen` is "VERSION/PATH"; each of `rejected` is "VERSION/PATH CODE", or "VERSION CODE" for a whole version."""
    expect: Json = {"version": None, "artifact": None}
    if chosen is not None:
        expect["version"], expect["artifact"] = chosen.split("/", 1)
    if size is not None:
        expect["size"] = size
    expect["rejected"] = [_rejection(line) for line in rejected]
    return {
        "name": name,
        "state": state,
        "tag": tag,
        "query": query or {},
        "device": device,
        "expect": expect,
    }


def _rejection(line: str) -> Json:
    what, code = line.rsplit(" ", 1)
    version, _, path = what.partition("/")
    return {"version": version, "artifact": path or None, "code": code}


def failing(name: str, state: str, error: str, **asked: Any) -> Json:
    """A question that cannot be answered at all: `not-found` or `input`."""
    found = vector(name, state, None, **asked)
    return {**found, "expect": {"error": error}}
