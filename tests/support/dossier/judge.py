"""Find every generated cell of a dossier in the files of its registry. Shares no code with onnxreg.

python judge.py DOSSIER.json REGISTRY docs/diff.md
"""

import base64
import hashlib
import json
import re
import sys
from pathlib import Path

import rfc8785
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

SPKI = bytes.fromhex("302a300506032b6570032100")  # before an Ed25519 key in DER (RFC 8410)
VERBS = ("added", "removed", "changed", "reordered", "renamed", "retyped", "reshaped")
SEVERITIES = ("breaking", "degrading", "notable", "cosmetic")


def tokens(pointer):
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]


def shape(cite):
    words = ["[]" if not re.fullmatch(r"[A-Za-z_][\w-]*", t) else f".{t}" for t in tokens(cite["pointer"])]
    return "".join(words).removeprefix(".")


def severities(text):
    usual = dict.fromkeys(VERBS[:3], "notable") | {"reordered": "cosmetic"}
    parts = (part.partition(": ") for part in text.split("; ") if part)
    return usual | {verb: severity for severity, _, verbs in parts for verb in verbs.split(", ")}


class Judge:
    def __init__(self, dossier, registry, rules):
        self.dossier, self.root = dossier, Path(registry)
        rows = re.findall(r"^\| `([^`]+)` \| (\S+) \| ([^|]*) \|$", rules, re.MULTILINE)
        self.rules = {place: (noun, severities(by)) for place, noun, by in rows}
        keys = [(key["name"], base64.b64decode(key["key"].split(":")[1])) for key in dossier["keys"]]
        self.keys = {hashlib.sha256(SPKI + raw).hexdigest(): (name, raw) for name, raw in keys}

    def blob(self, digest):
        return (self.root / "blobs/sha256" / digest[7:9] / digest[7:]).read_bytes()

    def line(self, log, number):
        if log == ".policy":
            return (self.root / "policy.jsonl").read_bytes().splitlines()[number - 1]
        state, *tail = (self.root / f"index/{log}.jsonl").read_bytes().splitlines()
        sealed = b"".join(map(self.blob, json.loads(state)["segments"])).splitlines()
        return (sealed + tail)[number - 1]

    def source(self, cite):
        data = self.blob(cite["blob"]) if "blob" in cite else self.line(cite["log"], cite["line"])
        assert f"sha256:{hashlib.sha256(data).hexdigest()}" == cite.get("blob", cite.get("digest")), "digest"
        return json.loads(data)

    def value(self, cite):
        value = self.source(cite)
        for key in tokens(cite["pointer"]):
            value = value[int(key) if isinstance(value, list) else key]
        assert rfc8785.dumps(value) == rfc8785.dumps(cite["value"]), "the source has another value there"
        return value

    def cell(self, cell, row):
        value, rule, sources = cell["value"], cell.get("rule"), cell.get("sources", [])
        values = [self.value(cite) for cite in sources]
        if rule is None:
            expected = values or [None]
        elif rule == "name":
            expected = tokens(sources[0]["pointer"])[-1:]
        else:
            expected = [self.signer(values[0], self.source(sources[0])) if rule == "signer" else value]
            assert rule == "signer" or self.is_change(row, list(map(shape, sources)), values)
        assert rfc8785.dumps([value]) == rfc8785.dumps(expected), f"expected {expected}"

    def signer(self, value, document):
        keyid, sig = value.split(":") if isinstance(value, str) else (value["keyid"], value["sig"])
        if keyid not in self.keys:
            return f"unknown key {keyid[:12]}"
        kind, payload = document.get("payloadType"), base64.b64decode(document.get("payload", ""))
        if not payload:
            line = {key: document[key] for key in ("seq", "prev", "event", "via") if key in document}
            line |= {"registry": self.dossier["subject"]["registry"], "name": line["event"]["name"]}
            kind, payload = "application/vnd.onnxreg.line.v1+json", rfc8785.dumps(line)
        signed = b"DSSEv1 %d %s %d %s" % (len(kind), kind.encode(), len(payload), payload)
        Ed25519PublicKey.from_public_bytes(self.keys[keyid][1]).verify(base64.b64decode(sig), signed)
        return self.keys[keyid][0]

    def is_change(self, row, places, values):
        pattern = re.sub(r'\[(?:"(?:[^"\\]|\\.)*"|[^\]]*)\]', "[]", row["Place"])
        fits = [p for p in self.rules if p == pattern or (p.endswith("*") and pattern.startswith(p[:-1]))]
        noun, by_verb = self.rules[max(fits, key=len)]
        verb = row["Kind"].removeprefix(f"{noun}-")
        severity = by_verb.get(verb, by_verb["changed"])
        one = "removed" if row.get("After") is None else "added"
        is_case = row["Severity"] in (SEVERITIES if severity == "by case" else (severity, "cosmetic"))
        return is_case and verb in VERBS and set(places) == {pattern} and (verb == one) == (len(values) == 1)

    def report(self):
        fields = [field for section in self.dossier["sections"] for field in section["fields"]]
        tables = [(field["label"], table) for field in fields for table in field.get("tables", [])]
        cells, wrong = 0, []
        for label, table in tables:
            for row in table["rows"]:
                words = {k: cell["value"] for k, cell in zip(table.get("columns", []), row, strict=False)}
                for cell in row:
                    cells += bool(cell.get("sources"))
                    try:
                        self.cell(cell, words)
                    except Exception as error:  # noqa: BLE001
                        wrong.append(f"{label}: {cell['value']!r}: {type(error).__name__} {error}")
        return cells, wrong


if __name__ == "__main__":
    dossier, rules = (Path(path).read_text() for path in (sys.argv[1], sys.argv[3]))
    cells, wrong = Judge(json.loads(dossier), sys.argv[2], rules).report()
    sys.exit("\n".join(wrong) or print(cells, "cells, each is in its source"))
