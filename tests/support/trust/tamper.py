"""What an attacker does to the files of a tree. Nothing here goes through the registry's verbs.

The attacker knows the format: `remake` computes the chain and the state line anew, as any program could.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from onnxreg.registry.log.ledger import replay
from onnxreg.registry.log.lookup import fetcher
from onnxreg.registry.signing import PrivateKey
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.log.logline import LogLine, genesis
from onnxreg.schema.signing.dsse import sign_line

Line = dict[str, Any]


class Tree:
    """The files of a registry, written at will."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def id(self) -> str:
        found: str = json.loads((self.root / "registry.json").read_bytes())["id"]
        return found

    def index(self, name: str) -> Path:
        return self.root / "index" / f"{name}.jsonl"

    def blob(self, digest: str) -> Path:
        hexed = digest.removeprefix("sha256:")
        return self.root / "blobs" / "sha256" / hexed[:2] / hexed

    def read(self, digest: str) -> Any:
        return json.loads(self.blob(digest).read_bytes())

    def put(self, data: bytes) -> str:
        """A blob that the attacker made."""
        digest = str(Digest.of(data))
        self.blob(digest).parent.mkdir(parents=True, exist_ok=True)
        self.overwrite(self.blob(digest), data)
        return digest

    def overwrite(self, path: Path, data: bytes) -> None:
        path.unlink(missing_ok=True)
        path.write_bytes(data)

    def state(self, name: str) -> Any:
        return json.loads(self.index(name).read_bytes().split(b"\n")[0])

    def edit_state(self, name: str, change: Callable[[Any], None]) -> None:
        """Change the state line alone."""
        first, rest = self.index(name).read_bytes().split(b"\n", 1)
        value = json.loads(first)
        change(value)
        self.overwrite(self.index(name), canonical.encode(value) + b"\n" + rest)

    def lines(self, name: str) -> list[Line]:
        """The whole log, sealed lines first."""
        sealed = [self.blob(segment).read_bytes() for segment in self.state(name)["segments"]]
        tail = self.index(name).read_bytes().split(b"\n", 1)[1]
        return [json.loads(line) for line in b"".join([*sealed, tail]).splitlines()]

    def edit_line(self, name: str, number: int, change: Callable[[Line], None]) -> None:
        """Change one line of the tail, and nothing else."""
        rows = self.index(name).read_bytes().split(b"\n")
        value = json.loads(rows[number])
        change(value)
        rows[number] = canonical.encode(value)
        self.overwrite(self.index(name), b"\n".join(rows))

    def remake(
        self,
        name: str,
        lines: Sequence[Line],
        key: PrivateKey | None = None,
        only: Sequence[int | None] | None = None,
    ) -> None:
        """Write an index whose chain and state are those of these lines; what was signed keeps its old signature.

        With a key it signs all lines anew (or only those at these positions).
        """
        made = self.remade(lines, name, key, only)
        ledger = replay(made, self.id, name, fetcher(DirectoryRegistry(self.root)))
        for blob in ledger.blobs:
            self.put(blob)
        self.overwrite(self.index(name), ledger.encode())

    def remade(
        self,
        lines: Sequence[Line],
        name: str,
        key: PrivateKey | None = None,
        only: Sequence[int | None] | None = None,
    ) -> list[LogLine]:
        """The lines, numbered and chained anew."""
        registry = self.id
        prev, made = genesis(registry, name), []
        for number, line in enumerate(lines, 1):
            value = {**line, "seq": number, "prev": str(prev)}
            if key is not None and (only is None or number - 1 in range(len(lines))[slice(*only)]):
                value.pop("sig", None)
                value["sig"] = sign_line(registry, key.sign, value)
            made.append(LogLine.decode(canonical.encode(value)))
            prev = made[-1].digest
        return made

    def forge_version(self, name: str, version: str) -> str:
        """A manifest like that of a version, with other weights that claim to be certified. Its blobs are planted."""
        value = self.read(self.state(name)["versions"][version]["manifest"])
        weights = self.put(b"weights with a back door")
        artifact = value["artifacts"][-1]
        artifact |= {"digest": weights, "size": len(b"weights with a back door")}
        evidence = dict.fromkeys(("artifact", "parent", "suite"), weights)
        artifact["certification"] = {"state": "certified", "evidence": evidence}
        artifact.pop("parent", None)
        return self.put(canonical.encode(value))

    def plant_manifest(self, name: str, change: Callable[[Any], None]) -> None:
        """Change the manifest of a model of one line, and the digests that lead to it: the index fits, the manifest need not."""
        state = self.state(name)
        (entry,) = state["versions"].values()
        manifest = self.read(entry["manifest"])
        change(manifest)
        planted = self.put(canonical.encode(manifest))
        replaced = self.index(name).read_bytes().replace(entry["manifest"].encode(), planted.encode())
        self.overwrite(self.index(name), replaced)
        (line,) = replaced.splitlines()[1:]
        self.edit_state(name, lambda value: value.update(head=str(Digest.of(line))))

    def edit_envelope(self, digest: str, change: Callable[[Any], None]) -> str:
        """An envelope whose payload is changed and whose signatures stay; returns the digest of the new blob."""
        envelope = self.read(digest)
        payload = json.loads(b64decode(envelope["payload"]))
        change(payload)
        envelope["payload"] = b64encode(canonical.encode(payload)).decode()
        return self.put(canonical.encode(envelope))


def event(line: Line, **more: Any) -> Line:
    """A line with another event in it: its signature, if any, stays as it was."""
    return {**line, "event": {**line["event"], **more}}


def unsigned(line: Line) -> Line:
    return {key: value for key, value in line.items() if key != "sig"}


def kinds(lines: Sequence[Line], kind: str) -> list[int]:
    """The positions of the events of a kind."""
    return [number for number, line in enumerate(lines) if line["event"]["kind"] == kind]
