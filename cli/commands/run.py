"""`reg run`: run an artifact in ONNX Runtime, with golden vectors, a text, a sound, an image or tensors."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from onnxreg.cli import apart
from onnxreg.cli.options import DEVICE, REF, REMOTE, Session, flag, option, read_one_device
from onnxreg.cli.output import counted, needs, printable, table, write_file
from onnxreg.registry.resolution import NoAnswerError, Resolution, resolve
from onnxreg.schema.core.errors import GateError, InputError, NotFoundError
from onnxreg.schema.core.files import check_given
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.core.units import SILENT, Progress
from onnxreg.schema.query.resolve import Query

if TYPE_CHECKING:
    from onnxreg.converters.evaluation.answers import TextModel
    from onnxreg.converters.passes.samples import Feed
    from onnxreg.registry.store.protocol import RegistryReader
    from onnxreg.registry.transfer.export_files import UnpackedArtifact
    from onnxreg.schema.manifest.manifest import Artifact, Manifest
    from onnxreg.schema.query.device import Device

    Answer = tuple[dict[str, Any], Iterable[str]]
    """An answer of a model: its JSON document, and its lines for people."""

EXAMPLES = (
    "reg run acme/pii-small --self-test",
    "reg run acme/pii-small --text 'Call Anna at 555-0100'",
    "reg run acme/squad --text 'Who called?' --context 'Anna called Bob on Monday.'",
    "reg run acme/vit --image photo.jpg",
    "reg run acme/owlvit --image photo.jpg --text 'a cat' --text 'a dog'",
    "reg run acme/whisper --audio call.wav",
    "reg run acme/mms-tts --text 'Good morning' --output morning.wav",
    "reg run acme/pii-small:1.4.0 --input feeds.json --remote origin",
)
MAX_TOKENS = 512  # of a text, if the version does not state its model's limit
MAX_VALUES, MAX_CLASSES, MAX_TEXT = 6, 10, 40  # of a vector, classes, and characters of a text that are shown
TEXT, IMAGE, AUDIO, BOTH = "--text", "--image", "--audio", "--image and --text"
NOUNS = {TEXT: "text", IMAGE: "image", AUDIO: "sound", BOTH: "image with text"}
CUT = "the text is longer than the model takes: its end was not read"
MAX_NEW_TOKENS = 32  # the default of --max-tokens
# The first set of decoders that a version has is used.
ENCODER, DECODERS = "encoder", (("decoder_merged",), ("decoder", "decoder_with_past"))


def command(
    session: Session,
    *,
    ref: str = REF,
    self_test: bool = flag("Compare with the golden vectors of the artifact."),
    text: list[str] | None = option(
        "Run the artifact on this text, as its task says. Repeat the option to compare embeddings."
    ),
    passage: str | None = option(
        "The text that a question is about, or the second text of a pair.", "--context", metavar="TEXT"
    ),
    audio: Path | None = option("Run the artifact on this file of sound, such as a .wav, as its task says."),
    max_tokens: int | None = option(
        f"The maximum number of generated tokens; by default {MAX_NEW_TOKENS}, or what an encoder-decoder states.",
        min=1,
    ),
    image: Path | None = option(
        "Run the artifact on this image file, as its task says. An animated image is read as a video."
    ),
    feeds: Path | None = option(
        "Run the artifact on these tensors: .npz, or JSON with nested lists by the names of the inputs.",
        "--input",
    ),
    output: Path | None = option(
        "Write the sound that the artifact makes to this .wav file.", metavar="FILE"
    ),
    query: Query,
    device: str | None = DEVICE,
    remote: str | None = REMOTE,
) -> None:
    """Run an artifact on the CPU of this machine; `reg resolve` with the same options chooses the same artifact.

    With --self-test, a difference beyond the tolerances is exit status 8. With --remote the files are fetched for this
    run only. The task decides the result (docs/tasks.md). --text shows spans, classes, vectors, a continuation, the
    text that an encoder-decoder generates, a sound, or an answer, which is a part of --context. --audio shows spoken
    words, classes or a vector. --image shows classes, objects, segments, depth, a vector or text. --image with --text
    shows which of the texts fit the image.

    With --json: {name, version, path, runtime}, and the keys of the option. --self-test: {passed, cases: [{case,
    output, values, max_abs_error, atol, rtol, beyond, passed}]}; --input: {outputs: {name: {dtype, shape, data}}};
    --image: {classes: [{label, score}], activation}, {objects: [{label, score, box}]}, {segments: [{label, share}],
    pixels}, {depth: [[value]]} or {vector, pooling} (box: left, top, right, bottom, as shares); --audio: {transcript},
    classes or a vector; --text: {spans: [{start, end, label, text}]}, {classes: [{label, score}], activation,
    truncated}, {answer: {text, start, end, score}} (null without an answer), {embeddings: [{text, vector, truncated,
    tokens?: [{token, start, end, vector}]}], pooling, prompt?, similarity: [[cosine]]}, {completion: {text, tokens,
    finish}} or {waveform, sampling_rate, truncated}. An encoder-decoder gives {generated: {text, tokens, finish},
    paths}. start and end count code points; the character at end is not included.
    """
    kinds = {"--self-test": self_test, TEXT: text, AUDIO: audio, IMAGE: image, "--input": feeds}
    options = [option for option, value in kinds.items() if value]
    options = [BOTH] if options == [TEXT, IMAGE] else options
    if len(options) != 1:
        raise InputError("say what to run it on", "one of --self-test, --text, --audio, --image and --input")
    if passage is not None and not text:
        raise InputError("--context needs a --text", "such as a question about it")
    if feeds is not None:
        check_given(feeds, hint='--input takes a .npz or .json file, such as {"x": [[1, 2, 3, 4]]}')
    reader = session.reader(remote)
    device_ = read_one_device(device)
    answers = _resolve(reader, Ref.parse(ref), query, device_, is_whole=options[0] in NOUNS)
    answer = answers[0]
    for warning in dict.fromkeys(warning for one in answers for warning in one.warnings):
        session.warn(warning)
    with needs("onnx", "reg run"):
        from onnxreg.converters.runtime.golden import runtime_version

        runtime = runtime_version()
    from onnxreg.registry.transfer.export_files import unpacked

    artifact, version = answer.artifact, answer.located.version
    identity = {"name": answer.located.name, "version": version, "path": artifact.path, "runtime": runtime}
    with ExitStack() as stack:
        with session.progress(f"reading {artifact.path}") as progress:
            parts = [stack.enter_context(unpacked(reader, one, progress)) for one in answers]
        files = parts[0]
        if options[0] in NOUNS:
            _check_takes(files, options[0])

        def work(_: Progress) -> "Answer":
            if len(parts) > 1:
                result, lines = _generate(parts, text or [], passage, image or audio, max_tokens)
            elif text and not image:
                result, lines = _read(files, text, passage, max_tokens or MAX_NEW_TOKENS)
            elif file := image or audio:
                result, lines = _look(files, file, text or [])
            elif feeds is not None:
                result, lines = _feed(files, feeds)
            else:
                result, lines = _self_test(files, runtime)
            return result, list(lines)

        result, lines = apart.run(work, SILENT)
        last = "to hear it: --output FILE.wav" if "waveform" in result else None
        if output is not None:
            _write_sound(output, result)
            last = f"written to {output}"
        session.show(identity | result, lines, last)
    if not (self_test or session.as_json):  # the self-test's last line has the path
        session.warn(f"answered by {answer.located.ref}: {', '.join(one.artifact.path for one in answers)}")
    if result.get("passed") is False:
        raise GateError(
            f"{answer.located.ref} {artifact.path} gives other values here than where it was made",
            "do not use this runtime for it: another release of ONNX Runtime, or another artifact",
        )


def _write_sound(path: Path, result: dict[str, Any]) -> None:
    from onnxreg.converters.tasks.preprocessing import wave_file

    if "waveform" not in result:
        raise InputError("the artifact gives no sound that could be written", "leave --output out")
    write_file(path, wave_file(result["waveform"], result["sampling_rate"]))


def _resolve(
    reader: "RegistryReader", ref: Ref, query: Query, device: "Device | None", is_whole: bool
) -> list[Resolution]:
    """Resolve the ref to one artifact. If `is_whole`, an encoder-decoder gives its encoder and all its decoders."""
    try:
        return [resolve(reader, ref, query, device)]
    except NoAnswerError as nothing:
        members = nothing.members
        decoders = next((names for names in DECODERS if {*names} <= members), None)
        if not is_whole or query.member or ENCODER not in members or decoders is None:
            raise
    first = resolve(reader, ref, replace(query, member=ENCODER), device)
    ref = Ref(ref.name, str(first.located.version))
    return [first, *(resolve(reader, ref, replace(query, member=name), device) for name in decoders)]


def _input_option(manifest: "Manifest", artifact: "Artifact") -> str:
    """Return the option of `reg run` for a graph's input, such as `--image`. It is `--input` for tensors only."""
    inputs = artifact.metadata.inputs
    axes = len(inputs[0].shape) if len(inputs) == 1 else 0
    names = {item.name for item in inputs}
    if "input_ids" in names and not names & {"pixel_values", "input_features", "input_values"}:
        return TEXT
    if {"input_ids", "pixel_values"} <= names and manifest.preprocessing is not None:
        return BOTH
    if axes in (4, 5) and manifest.preprocessing is not None:
        return IMAGE
    return AUDIO if axes in (2, 3) and manifest.audio_preprocessing is not None else "--input"


def _check_takes(files: "UnpackedArtifact", kind: str) -> None:
    manifest, takes = files.manifest, _input_option(files.manifest, files.artifact)
    if takes == kind or (kind == TEXT and not files.artifact.metadata.inputs):  # it may be unknown
        return
    message, hint = f"{manifest.name} takes no {NOUNS[kind]}", f"it takes {NOUNS.get(takes)}s: {takes}"
    if takes not in NOUNS:
        message = f"{manifest.name} does not say how its input is made from {NOUNS[kind]}s"
        hint = "run it on tensors: --input"
    members = {_input_option(manifest, item): manifest.members.get(item.path) for item in manifest.artifacts}
    if members.get(kind) and ENCODER not in manifest.members.values():
        hint = f"another graph does: --member {members[kind]}"
    raise InputError(message, hint)


def _numbers(files: "UnpackedArtifact", file: Path) -> "Feed":
    from onnxreg.converters.tasks.preprocessing import read_image, read_sound

    image, sound = files.manifest.preprocessing, files.manifest.audio_preprocessing
    if image is not None and _input_option(files.manifest, files.artifact) in (IMAGE, BOTH):
        shapes = [item.shape for item in files.artifact.metadata.inputs]
        frames = next((shape[1].value or 0 for shape in shapes if len(shape) == 5), 0)  # of a video
        numbers = read_image(file, image, frames)
    else:
        assert sound is not None, "_check_takes refuses other graphs"
        numbers = read_sound(file, sound)
    names = (item.name for item in files.artifact.metadata.inputs)
    return {next(name for name in names if name not in ("input_ids", "attention_mask")): numbers}


def _generate(
    parts: "list[UnpackedArtifact]",
    texts: list[str],
    passage: str | None,
    file: Path | None,
    max_tokens: int | None,
) -> "Answer":
    from onnxreg.converters.source.source_files import GENERATION_CONFIG
    from onnxreg.converters.tasks.generation import Generator, Rules, generate

    files = parts[0]
    tokenizer = _text_model(files).tokenizer
    if passage is not None or len(texts) > 1:
        message = "an encoder-decoder takes one text at a time"
        raise InputError(message, "leave --context and the other texts out")
    if file is None:
        row = tokenizer.row(texts[0]).inputs
        feed: Feed = {
            item.name: row[item.name] for item in files.artifact.metadata.inputs if item.name in row
        }
    else:
        feed = _numbers(files, file)
    rules = Rules.read(_config(files), _companion(files, GENERATION_CONFIG))
    model = Generator({files.manifest.members[part.artifact.path]: part.main for part in parts})
    ids, is_ended = generate(model, feed, rules, max_tokens)
    text = tokenizer.text(ids)
    generated = {"text": text, "tokens": len(ids), "finish": "end" if is_ended else "length"}
    end = "the model" if is_ended else "the limit of tokens"
    lines = [*map(printable, text.splitlines()), "", f"{counted(len(ids), 'token')}; {end} ended it"]
    return {"generated": generated, "paths": [part.artifact.path for part in parts]}, lines


def _self_test(files: "UnpackedArtifact", runtime: str) -> "Answer":
    from onnxreg.converters.runtime.golden import ROLE, self_test

    vectors, path = files.sidecar(ROLE), files.artifact.path
    if vectors is None:
        ways = "`reg export` makes none for decoders and large graphs, `reg add` takes MODEL.golden.json"
        hint = f"{ways}; or run it on an input of your own: {_input_option(files.manifest, files.artifact)}"
        raise NotFoundError(f"{path} has no golden vectors", hint)
    compared = self_test(files.main, vectors.read_bytes(), vectors.name)
    passed = all(item.passed for item in compared)
    words = {True: "pass", False: "fail"}
    rows = [
        (item.case, item.output, item.values, f"{item.max_abs_error:.2e}", item.tolerance, words[item.passed])
        for item in compared
    ]
    header = ("CASE", "OUTPUT", "VALUES", "MAX ABS ERROR", "TOLERANCE", "VERDICT")
    document = {"passed": passed, "cases": [item.to_json() for item in compared]}
    return document, [*table(header, rows), "", f"{path} in ONNX Runtime {runtime}: {words[passed]}"]


def _feed(files: "UnpackedArtifact", feeds: Path) -> "Answer":
    from onnxreg.converters.runtime.golden import Runnable, to_json

    graph = Runnable(files.main)
    outputs = to_json(graph.run(graph.read(feeds)))
    rows = [
        (name, item["dtype"], "x".join(map(str, item["shape"])), _cell(item["data"]))
        for name, item in outputs.items()
    ]
    return {"outputs": outputs}, table(("OUTPUT", "DTYPE", "SHAPE", "FIRST VALUES"), rows)


def _look(files: "UnpackedArtifact", file: Path, texts: list[str]) -> "Answer":
    from onnxreg.converters.evaluation.answers import run_named, run_numbers
    from onnxreg.converters.runtime.golden import Runnable
    from onnxreg.converters.source.source_files import read_object

    manifest, words = files.manifest, read_object(_companion(files, "vocab.json"))
    run, numbers, path = Runnable(files.main).run, _numbers(files, file), files.artifact.path
    if texts:
        sizes = {item.name: item.shape[-1].value for item in files.artifact.metadata.inputs}
        answer = run_named(run, _text_model(files).tokenizer, sizes, numbers, texts, _config(files), path)
        return answer, _lines(answer)
    answer = run_numbers(run(numbers), manifest.labels or (), _config(files), path, words, manifest.task)
    return answer, _lines(answer)


def _read(files: "UnpackedArtifact", texts: list[str], context: str | None, max_tokens: int) -> "Answer":
    from onnxreg.converters.evaluation.answers import run_texts

    answer = run_texts(_text_model(files), texts, context, max_tokens, files.manifest.task)
    return answer, _lines(answer, texts[0])


def _text_model(files: "UnpackedArtifact") -> "TextModel":
    from onnxreg.converters.evaluation.answers import TextModel, refuse
    from onnxreg.converters.evaluation.tokens import TextTokenizer

    manifest = files.manifest
    tokenizer = _companion(files, "tokenizer.json")
    if not tokenizer.is_file():
        raise refuse(manifest.name, "has no tokenizer.json")
    reader = TextTokenizer.read(tokenizer, manifest.max_sequence_length or MAX_TOKENS)
    return TextModel(files.main, reader, tuple(manifest.labels or ()), _config(files))


def _companion(files: "UnpackedArtifact", name: str) -> Path:
    paths = (file.path for file in (*files.artifact.files, *files.manifest.files))
    return files.root / next((path for path in paths if Path(path).name == name), name)


def _config(files: "UnpackedArtifact") -> dict[str, Any]:
    from onnxreg.converters.source.source_files import read_object

    path = files.manifest.config_path
    return read_object(files.root / path if path else _companion(files, "config.json"))


# Kind of answer -> columns of its table
KEYS = {
    "spans": ("label", "start", "end", "text"),
    "classes": ("label", "score"),
    "answer": ("text", "start", "end", "score"),
    "objects": ("label", "score", "box"),
    "segments": ("label", "share"),
}
NOTHING = {"spans": "no labelled spans", "answer": "the context has no answer", "objects": "no objects"}


def _lines(answer: dict[str, Any], text: str = "") -> Iterator[str]:
    if kind := next((kind for kind in KEYS if kind in answer), None):
        items = [answer[kind]] if isinstance(answer[kind], dict) else answer[kind] or []
        rows = [[_cell(item[key]) for key in KEYS[kind]] for item in items]
        shown = rows[:MAX_CLASSES] if kind == "classes" else rows
        yield from table([key.upper() for key in KEYS[kind]], shown) if rows else [NOTHING.get(kind, "")]
        if len(shown) < len(rows):
            yield f"... and {len(rows) - len(shown)} more; --json has them all"
        yield from ["", CUT] if answer.get("truncated") else []
    elif "depth" in answer:
        depth = [value for row in answer["depth"] for value in row]
        size = f"{len(answer['depth'])} x {len(answer['depth'][0])}"
        yield f"depth of {size} pixels, from {min(depth):.4g} to {max(depth):.4g}; --json has all of them"
    elif "waveform" in answer:
        count, rate = len(answer["waveform"]), answer["sampling_rate"]
        yield f"a sound of {count / rate:.2f} s, {rate:,} samples a second"
        yield from ["", CUT] if answer["truncated"] else []
    elif "transcript" in answer:
        yield printable(answer["transcript"])
    elif "vector" in answer:
        yield f"a vector of {len(answer['vector'])}: {_cell(answer['vector'])}"
    elif "embeddings" in answer:
        yield from _vector_lines(answer)
    else:
        added = answer["completion"]
        yield from map(printable, f"{text}{added['text']}".splitlines())
        end = "the model" if added["finish"] == "end" else "--max-tokens or the model's longest text"
        yield from ("", f"{counted(added['tokens'], 'token')} follow the text; {end} ended it")


def _vector_lines(answer: dict[str, Any]) -> Iterator[str]:
    items, cosines = answer["embeddings"], answer["similarity"]
    rows = [(shorten(item["text"], MAX_TEXT), len(item["vector"]), _cell(item["vector"])) for item in items]
    yield from table(("TEXT", "SIZE", "FIRST VALUES"), rows)
    if len(items) > 1:
        header = ("COSINE", *(f"TEXT {number}" for number in range(1, len(cosines) + 1)))
        yield from ("", *table(header, [(f"text {n}", *map(_cell, row)) for n, row in enumerate(cosines, 1)]))
    elif "tokens" in items[0]:
        keys = ("token", "start", "end", "vector")
        tokens = [[_cell(token[key]) for key in keys] for token in items[0]["tokens"]]
        yield from ("", *table(("TOKEN", "START", "END", "FIRST VALUES"), tokens))
    if answer["pooling"] == "mean":
        yield from ("", "the graph gives a vector for each token; a text's is their mean")
    if "prompt" in answer:
        yield from ("", f"before each text: {printable(answer['prompt'])}")
    if any(item["truncated"] for item in items):
        yield from ("", CUT)


def _cell(value: Any) -> str:
    if isinstance(value, list):
        numbers = [f"{item:.4g}" if isinstance(item, float) else str(item) for item in value[:MAX_VALUES]]
        return " ".join([*numbers, "..."] if len(value) > MAX_VALUES else numbers)
    return f"{value:.4f}" if isinstance(value, float) else str(value)
