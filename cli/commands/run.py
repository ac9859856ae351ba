"""`reg run`: run an artifact in ONNX Runtime on this machine, on its golden vectors, a text, a sound, an image or tensors."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from onnxreg.cli.context import Session
from onnxreg.cli.errors import needs
from onnxreg.cli.options import ANYTHING, DEVICE, REF, REMOTE, flag, option, read_one_device, takes_query
from onnxreg.cli.output import counted, printable, table
from onnxreg.registry.resolution import NoAnswerError, Resolution, resolve
from onnxreg.schema.core.errors import GateError, InputError, NotFoundError
from onnxreg.schema.core.files import check_given
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.query.requirements import Query

if TYPE_CHECKING:
    from onnxreg.converters.evaluation.run_texts import TextModel
    from onnxreg.registry.store.protocol import RegistryReader
    from onnxreg.registry.transfer.export_files import UnpackedArtifact
    from onnxreg.schema.query.device import Device

    Answer = tuple[dict[str, Any], Iterable[str]]
    """The document of an answer, and its lines."""

EXAMPLES = (
    "reg run acme/pii-small --self-test",
    "reg run acme/pii-small --text 'Call Anna at 555-0100'",
    "reg run acme/squad --text 'Who called?' --context 'Anna called Bob on Monday.'",
    "reg run acme/vit --image photo.jpg",
    "reg run acme/whisper --audio call.wav",
    "reg run acme/pii-small:1.4.0 --input feeds.json --remote origin",
)
MAX_TOKENS = 512
"""The most tokens of a row, if the version does not state the limit of its model."""
MAX_VALUES, MAX_CLASSES, MAX_TEXT = 6, 10, 40
"""The most values of a vector, classes of a text, and characters of a text that are shown to people."""
CUT = "the text is longer than the model takes: its end was not read"
MAX_NEW_TOKENS = 32
"""The default of `--max-tokens`, the most tokens that text generation adds."""
ENCODER, DECODERS = "encoder", (("decoder_merged",), ("decoder", "decoder_with_past"))
"""The members of an encoder-decoder: its encoder, and the decoders that generate, the first that are there."""


@takes_query
def command(
    session: Session,
    ref: str = REF,
    self_test: bool = flag("Compare with the golden vectors of the artifact."),
    text: list[str] | None = option(
        "Run it on this text, as its task says; for embeddings it may be repeated, to compare."
    ),
    passage: str | None = option(
        "The text that a question is about, or the second text of a pair.", "--context", metavar="TEXT"
    ),
    audio: Path | None = option("Write down what is said in this file of sound, such as a .wav."),
    max_tokens: int | None = option(
        f"The most tokens that are generated; by default {MAX_NEW_TOKENS}, or what an encoder-decoder states.",
        min=1,
    ),
    image: Path | None = option("Run it on this image file, as its task says."),
    feeds: Path | None = option(
        "Run on these tensors: .npz, or JSON of nested lists by input name.", "--input"
    ),
    query: Query = ANYTHING,
    device: str | None = DEVICE,
    remote: str | None = REMOTE,
) -> None:
    """Run an artifact on the CPU of this machine: the one that `reg resolve` chooses with the same options.

    With --self-test, a difference beyond the tolerances is exit status 8. With --remote the files are fetched for this
    run only. --text shows, by the task of the model: spans, classes, the part of --context that answers a question,
    vectors, the text that follows, or the text that an encoder-decoder makes of it; --audio shows what is said, --image
    shows classes, objects, segments, depth, a vector or what is written (docs/tasks.md).

    With --json: {name, version, path, runtime}, with --self-test {passed, cases: [{case, output, values,
    max_abs_error, atol, rtol, beyond, passed}]}, with --input {outputs: {name: {dtype, shape, data}}}, with
    --image one of {classes: [{label, score}], activation}, {objects: [{label, score, box}]}, {segments: [{label,
    share}], pixels}, {depth: [[value]]}, {vector, pooling} (box: left, top, right, bottom, as shares), with
    --text one of {spans: [{start, end, label, text}]}, {classes: [{label, score}], activation, truncated},
    {answer: {text, start, end, score}} (null without an answer), {embeddings: [{text, vector, truncated,
    tokens?: [{token, start, end, vector}]}], pooling, prompt?, similarity: [[cosine]]}, {completion: {text, tokens,
    finish}}, and, as with --audio, {generated: {text, tokens, finish}} and {paths}. Starts and ends are half-open, in
    code points.
    """
    if [self_test, bool(text), audio is not None, image is not None, feeds is not None].count(True) != 1:
        raise InputError("say what to run it on", "one of --self-test, --text, --audio, --image and --input")
    if passage is not None and not text:
        raise InputError("--context needs a --text", "such as a question about it")
    if feeds is not None:
        check_given(feeds, hint='--input takes a .npz or .json file, such as {"x": [[1, 2, 3, 4]]}')
    reader = session.reader(remote)
    device_ = read_one_device(device)
    answers = _resolve(reader, Ref.parse(ref), query, device_, is_whole=bool(text or audio or image))
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
        if len(parts) > 1:
            result, lines = _generate(parts, text, passage, image, audio, max_tokens)
        elif text:
            result, lines = _answer(files, text, passage, max_tokens or MAX_NEW_TOKENS)
        elif image is not None or audio is not None:
            result, lines = _look(files, image, audio)
        elif feeds is not None:
            result, lines = _feed(files, feeds)
        else:
            result, lines = _self_test(files, runtime)
        session.show(identity | result, lines)
    if result.get("passed") is False:
        raise GateError(
            f"{answer.located.ref} {artifact.path} gives other values here than where it was made",
            "do not use this runtime for it: another release of ONNX Runtime, or another artifact",
        )


def _resolve(
    reader: "RegistryReader", ref: Ref, query: Query, device: "Device | None", is_whole: bool
) -> list[Resolution]:
    """The artifact that answers; with `is_whole`, of an encoder-decoder one for each graph that generates."""
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


def _generate(
    parts: "list[UnpackedArtifact]",
    texts: list[str] | None,
    passage: str | None,
    image: Path | None,
    audio: Path | None,
    max_tokens: int | None,
) -> "Answer":
    from onnxreg.converters.source.source_files import GENERATION_CONFIG, read_json
    from onnxreg.converters.tasks.greedy import Generator, generate

    files = parts[0]
    manifest, inputs = files.manifest, [item.name for item in files.artifact.metadata.inputs]
    if passage is not None or len(texts or ()) > 1:
        raise InputError(
            "an encoder-decoder takes one text at a time", "leave --context and the other texts out"
        )
    tokenizer = _text_model(files).tokenizer
    if not texts:
        feed = {inputs[0]: _numbers(files, image, audio)}
    elif "input_ids" in inputs:
        row = tokenizer.row(texts[0]).inputs
        feed = {name: row[name] for name in inputs if name in row}
    else:
        raise InputError(
            f"{manifest.name} takes no text: it reads {inputs[0]}", "--audio FILE, or --image FILE"
        )
    stated = _companions(files).get(GENERATION_CONFIG)
    config = _config(files)
    settings = config if stated is None else read_json(stated)
    if not isinstance(settings, dict):
        raise InputError(f"{GENERATION_CONFIG} of {manifest.name} is not a JSON object")
    model = Generator({files.manifest.members[part.artifact.path]: part.main for part in parts})
    start = {"decoder_start_token_id": config.get("decoder_start_token_id")}
    limits = (config.get(key) for key in ("max_target_positions", "max_position_embeddings"))
    positions = next((limit for limit in limits if isinstance(limit, int) and limit > 0), None)
    ids, is_ended = generate(model, feed, start | settings, max_tokens, positions)
    text = tokenizer.text(ids)
    generated = {"text": text, "tokens": len(ids), "finish": "end" if is_ended else "length"}
    end = "the model" if is_ended else "the limit of tokens"
    lines = [*map(printable, text.splitlines()), "", f"{counted(len(ids), 'token')}; {end} ended it"]
    return {"generated": generated, "paths": [part.artifact.path for part in parts]}, lines


def _self_test(files: "UnpackedArtifact", runtime: str) -> "Answer":
    from onnxreg.converters.runtime.golden import ROLE, self_test

    vectors = files.sidecar(ROLE)
    if vectors is None:
        raise NotFoundError(
            f"{files.artifact.path} has no golden vectors",
            "`reg export` makes them, `reg add` takes MODEL.golden.json along; or run it on tensors of your own: --input",
        )
    compared = self_test(files.main, vectors.read_bytes(), vectors.name)
    passed = all(item.passed for item in compared)
    rows = [
        (
            *(item.case, item.output, item.values, f"{item.max_abs_error:.2e}", item.tolerance),
            "pass" if item.passed else "fail",
        )
        for item in compared
    ]
    verdict = f"{files.artifact.path} in ONNX Runtime {runtime}: {'pass' if passed else 'fail'}"
    header = ("CASE", "OUTPUT", "VALUES", "MAX ABS ERROR", "TOLERANCE", "VERDICT")
    document = {"passed": passed, "cases": [item.to_json() for item in compared]}
    return document, [*table(header, rows), "", verdict]


def _feed(files: "UnpackedArtifact", feeds: Path) -> "Answer":
    from onnxreg.converters.runtime.golden import Runnable, to_json

    graph = Runnable(files.main)
    outputs = to_json(graph.run(graph.read(feeds)))
    rows = [
        (name, item["dtype"], "x".join(map(str, item["shape"])), _first_values(item["data"]))
        for name, item in outputs.items()
    ]
    return {"outputs": outputs}, table(("OUTPUT", "DTYPE", "SHAPE", "FIRST VALUES"), rows)


def _numbers(files: "UnpackedArtifact", image: Path | None, sound: Path | None) -> Any:
    """The input that a graph takes for an image or a sound. InputError if the manifest does not say how to make it."""
    from onnxreg.converters.tasks.pixels import read_image
    from onnxreg.converters.tasks.sound import read_sound

    manifest, inputs = files.manifest, files.artifact.metadata.inputs
    axes = len(inputs[0].shape) if len(inputs) == 1 else 0
    if image is not None and manifest.preprocessing is not None and axes == 4:
        return read_image(image, manifest.preprocessing)
    if sound is not None and manifest.audio_preprocessing is not None and axes in (2, 3):
        return read_sound(sound, manifest.audio_preprocessing)
    kind = "an image" if sound is None else "a sound"
    message = f"{manifest.name} does not say how {kind} becomes its input"
    raise InputError(message, "run it on tensors: --input")


def _look(files: "UnpackedArtifact", image: Path | None, sound: Path | None) -> "Answer":
    """The answer of a graph to an image or a sound."""
    from onnxreg.converters.evaluation.run_images import run_numbers
    from onnxreg.converters.runtime.golden import Runnable
    from onnxreg.converters.source.source_files import read_json

    manifest, inputs = files.manifest, files.artifact.metadata.inputs
    numbers = _numbers(files, image, sound)
    vocabulary = _companions(files).get("vocab.json")
    words = {} if vocabulary is None else read_json(vocabulary)
    outputs = Runnable(files.main).run({inputs[0].name: numbers})
    if manifest.labels or manifest.task == "image-classification":  # a module may name its classes otherwise
        outputs = {"logits": next(iter(outputs.values())), **outputs}
    words = words if isinstance(words, dict) else {}
    answer = run_numbers(outputs, manifest.labels or (), _config(files), files.artifact.path, words)
    return answer, _number_lines(answer)


def _number_lines(answer: dict[str, Any]) -> Iterator[str]:
    """The lines that show an answer of `run_numbers` to people."""
    if "objects" in answer:
        objects = answer["objects"]
        rows = [(item["label"], f"{item['score']:.4f}", _first_values(item["box"])) for item in objects]
        yield from table(("LABEL", "SCORE", "BOX, AS SHARES OF THE IMAGE"), rows) if rows else ["no objects"]
    elif "depth" in answer:
        depth = [value for row in answer["depth"] for value in row]
        size = f"{len(answer['depth'])} x {len(answer['depth'][0])}"
        yield f"depth of {size} pixels, from {min(depth):.4g} to {max(depth):.4g}; --json has all of them"
    elif "segments" in answer:
        yield from table(
            ("LABEL", "SHARE"), [(item["label"], f"{item['share']:.4f}") for item in answer["segments"]]
        )
    elif "transcript" in answer:
        yield printable(answer["transcript"])
    elif "vector" in answer:
        yield f"a vector of {len(answer['vector'])}: {_first_values(answer['vector'])}"
    else:
        yield from _text_lines(answer, ())


def _answer(files: "UnpackedArtifact", texts: list[str], context: str | None, max_tokens: int) -> "Answer":
    from onnxreg.converters.evaluation.run_texts import run_texts

    answer = run_texts(_text_model(files), texts, context, max_tokens, files.manifest.task)
    return answer, _text_lines(answer, texts)


def _text_model(files: "UnpackedArtifact") -> "TextModel":
    """The artifact with the tokenizer, labels and config of its version. Raise InputError without a tokenizer."""
    from onnxreg.converters.evaluation.run_texts import TextModel, refuse
    from onnxreg.converters.evaluation.tokens import TextTokenizer

    manifest = files.manifest
    tokenizer = _companions(files).get("tokenizer.json")
    if tokenizer is None or not tokenizer.is_file():
        raise refuse(manifest.name, "has no tokenizer.json")
    reader = TextTokenizer.read(tokenizer, manifest.max_sequence_length or MAX_TOKENS)
    return TextModel(files.main, reader, tuple(manifest.labels or ()), _config(files))


def _companions(files: "UnpackedArtifact") -> dict[str, Path]:
    """The companions of the artifact by name."""
    companions = (*reversed(files.manifest.files), *files.artifact.files)
    return {Path(file.path).name: files.root / file.path for file in companions}


def _config(files: "UnpackedArtifact") -> dict[str, Any]:
    """The checkpoint's config.json; empty if the version has none."""
    from onnxreg.converters.source.source_files import read_json

    path = files.manifest.config_path
    config = files.root / path if path else _companions(files).get("config.json")
    value = read_json(config) if config is not None and config.is_file() else None
    return value if isinstance(value, dict) else {}


def _text_lines(answer: dict[str, Any], texts: Sequence[str]) -> Iterator[str]:
    """The lines that show an answer of `run_texts` to people."""
    if "classes" in answer:
        classes = answer["classes"]
        rows = [(item["label"], f"{item['score']:.4f}") for item in classes[:MAX_CLASSES]]
        yield from table(("LABEL", "SCORE"), rows)
        if len(rows) < len(classes):
            yield f"... and {len(classes) - len(rows)} more; --json has them all"
        yield from ["", CUT] if answer.get("truncated") else []
    elif "embeddings" in answer:
        yield from _vector_lines(answer)
    elif "completion" in answer:
        added = answer["completion"]
        yield from map(printable, f"{texts[0]}{added['text']}".splitlines())
        end = "the model" if added["finish"] == "end" else "--max-tokens"
        yield from ("", f"{counted(added['tokens'], 'token')} follow the text; {end} ended it")
    elif "answer" in answer:
        part = answer["answer"]
        answers = [(part["text"], part["start"], part["end"], f"{part['score']:.4f}")] if part else []
        yield from (
            table(("ANSWER", "START", "END", "SCORE"), answers) if answers else ["the context has no answer"]
        )
    else:
        spans = [(span["label"], span["start"], span["end"], span["text"]) for span in answer["spans"]]
        yield from table(("LABEL", "START", "END", "TEXT"), spans) if spans else ["no labelled spans"]


def _vector_lines(answer: dict[str, Any]) -> Iterator[str]:
    """Lines about the vectors of texts: each token of a single text, or the similarities of several texts."""
    items, cosines = answer["embeddings"], answer["similarity"]
    rows = [
        (shorten(item["text"], MAX_TEXT), len(item["vector"]), _first_values(item["vector"]))
        for item in items
    ]
    yield from table(("TEXT", "SIZE", "FIRST VALUES"), rows)
    if len(items) > 1:
        header = ("COSINE", *(f"TEXT {number}" for number in range(1, len(cosines) + 1)))
        lines = [(f"text {number}", *(f"{c:.4f}" for c in row)) for number, row in enumerate(cosines, 1)]
        yield from ("", *table(header, lines))
    elif "tokens" in items[0]:
        tokens = [
            (token["token"], token["start"], token["end"], _first_values(token["vector"]))
            for token in items[0]["tokens"]
        ]
        yield from ("", *table(("TOKEN", "START", "END", "FIRST VALUES"), tokens))
    if answer["pooling"] == "mean":
        yield from ("", "the graph gives a vector for each token; a text's is their mean")
    if "prompt" in answer:
        yield from ("", f"before each text: {printable(answer['prompt'])}")
    if any(item["truncated"] for item in items):
        yield from ("", CUT)


def _first_values(values: Iterable[float | int | None]) -> str:
    """The first numbers of an array as text."""
    numbers = list(values)
    first = " ".join(
        f"{value:.4g}" if isinstance(value, float) else str(value) for value in numbers[:MAX_VALUES]
    )
    return first + (" ..." if len(numbers) > MAX_VALUES else "")
