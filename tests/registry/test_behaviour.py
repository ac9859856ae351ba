"""The scripts of behaviour.json in Python, as a program on a device would use the library: resolve, then pull.

The library keeps no releases of a device: scripts that roll back, test a release or clear refusals are the clients' alone.
It refuses a place that went back (docs/signing.md, "Known heads"), where a client answers by what it saw last.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.sampling import sampled
from support.servers import http

from onnxreg.registry import Registry
from onnxreg.registry.log.contents import Selection
from onnxreg.registry.log.log import read_blob
from onnxreg.registry.resolution import Resolution
from onnxreg.schema.core.errors import NotFoundError, RegError, RemoteError
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.query.device import Device
from onnxreg.schema.query.resolve import Query

DOCUMENT = json.loads((Path(__file__).parents[1] / "vectors" / "behaviour.json").read_text("utf-8"))
NAME, SEED = "acme/pii", "0" * 64
OF_A_DEVICE = {"rollback", "clear", "bad", "throws", "stale"}
VECTORS = {
    vector["name"]: vector["steps"]
    for vector in DOCUMENT["vectors"]
    if not any(OF_A_DEVICE & {step["call"], *step, *step["expect"]} for step in vector["steps"])
}


class Handler(http.Handler):
    """A static host whose tree and fault are those of a step."""

    step: dict[str, Any]

    def answer(self) -> None:
        path, _, query = self.path.partition("?")
        key = "tree" if query else "cached"
        tree, fault = DOCUMENT["trees"][self.step.get(key, self.step["tree"])], self.step.get("fault")
        files = {"/registry.json": tree["registry"], f"/index/{NAME}.jsonl": tree["index"]}
        is_blob = path.startswith("/blobs/") and fault != "absent"
        text = DOCUMENT["documents"].get(path.rpartition("/")[2]) if is_blob else files.get(path)
        if fault == "down":
            return self.break_off()
        data = (text or "").encode("latin-1")
        if is_blob and fault == "garbled" and data:
            data = bytes([data[0] ^ 1]) + data[1:]
        self.reply(404 if text is None else 200, data)


class App:
    """A program that takes the model that its device gets."""

    def __init__(self, home: Path, url: str) -> None:
        self.registry, self.url = Registry(home), url
        self.current: str | None = None

    def resolve(self, question: dict[str, Any]) -> tuple[Resolution, bool]:
        """The answer, and whether the state that was seen last gave it."""
        query = Query.read(question.get("query") or {})
        device = Device.read(question["device"]) if question.get("device") else None
        seed = None if "seed" in question else SEED
        ref, remotes = Ref.parse(":".join(filter(None, (NAME, question.get("tag"))))), self.registry.remotes
        try:
            reader = remotes.read(self.url, self.registry.heads)
            return self.registry.resolve(ref, query, reader, device, seed), False
        except RemoteError as error:
            try:
                reader = remotes.read(self.url, self.registry.heads, lambda age, where: None)
                return self.registry.resolve(ref, query, reader, device, seed), True
            except NotFoundError:
                raise error from None

    def answer(self, call: str, question: dict[str, Any]) -> dict[str, Any]:
        resolution, is_offline = self.resolve(question)
        version, artifact = str(resolution.located.version), resolution.artifact.path
        before = self.current
        if call == "update":
            if not is_offline:
                selection = Selection(paths=(artifact,))
                self.registry.pull(f"{NAME}:{version}", self.url, selection=selection)
            for file, _ in resolution.files:
                read_blob(self.registry.store, file.digest)
            self.current = version
        return {"version": version, "artifact": artifact, "changed": version != before, "offline": is_offline}


@pytest.fixture
def handler() -> Iterator[type[Handler]]:
    yield type("Steps", (Handler,), {})


@pytest.mark.parametrize("name", sampled(VECTORS, 2))
def test_a_program_gets_what_a_client_gets(name, handler, tmp_path):
    with http.serving(handler) as url:
        app = App(tmp_path / "app", url)
        for step in VECTORS[name]:
            handler.step = step
            try:
                answer = app.answer(step["call"], step["question"])
            except RegError as error:
                answer = {"error": error.family}
            answer["current"] = app.current
            expected = {key: value for key, value in step["expect"].items() if key != "previous"}
            assert answer == {**answer, **expected}, step
