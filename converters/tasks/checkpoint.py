"""Load checkpoints of transformers; refuse missing weights, and code that the user did not allow.

A `TaskHead` names the transformers class that loads a checkpoint, and describes the outputs of the graph.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from onnxreg.converters.runtime.sessions import silent_transformers
from onnxreg.converters.source.location import Location, check_inside
from onnxreg.converters.source.source_files import (
    CARD,
    CONFIG,
    PROCESSOR,
    WEIGHTS,
    digest_files,
    read_object,
    weight_files,
)
from onnxreg.converters.source.toolchain import refuse_missing, require_memory
from onnxreg.converters.tasks.heads import (
    LOADERS,
    Modality,
    TaskHead,
)
from onnxreg.converters.tasks.task import SAVE_TOKENIZER, LocatedSource
from onnxreg.schema.core.errors import InputError, why
from onnxreg.schema.manifest.manifest import Source

TOKENIZER_FILE = "tokenizer.json"
SAVED = "give the directory that save_pretrained wrote"
TRIAL_TEXTS = (
    "The patient was SEEN on 2024-03-18 by Dr. Maria O'Neill-Lindqvist (ward_7B), and can't walk.",
    "Le dossier n\u00b0 88\u20111204 na\u00efve \u00dcBER \u0130stanbul stra\u00dfe cafe\u0301 \ufb01ve \u2460 \uff26\uff35\uff2c\uff2c.",
    "  Two  spaces,\ta tab,\na line; \u6628\u65e5\u3001\u7530\u4e2d\u3055\u3093 \uc548\ub155 \u0645\u0631\u062d\u0628\u0627 \U0001f600 1234567 <x>@a.org \u200b\u00ad\u00a0x ",
)
"""Texts that tokenizers treat differently: letter case, accents, digits, spaces, scripts, equivalent characters."""

NOT_TRAINED = re.compile(
    r"(^|\.)(pooler\..*|cls\.seq_relationship\..*|position_ids|token_type_ids|(\w+_)?inv_freq|masked_bias|attn\.bias|num_batches_tracked"
    r"|(cos|sin)_cached|relative_position_index)$"
)
"""Names of weights that a graph may leave unused: of poolers or sentence order, or buffers that some versions save."""

ONLY_FOR_TRAINING = re.compile(r"(^|\.)(masked_spec_embed|mask_token)$")
"""Names of weights that only training reads, so that a checkpoint may lack them."""

COUNTS, MAX_COUNT = re.compile("(layers?|depths?|blocks|stages|experts)$"), 1_000
"""Keys of config.json that count parts of a model, such as layers, and the largest count that is accepted."""
PARAMETER_BYTES = 12
"""Bytes of memory for each parameter: in the model, in its graph, and in the file that is written."""


def require_processor(directory: Path, modality: Modality) -> None:
    """Raise InputError if a checkpoint has no settings of an image processor or feature extractor."""
    if not any((directory / name).is_file() for name in PROCESSOR):
        kind = LOADERS[modality][1]
        message = f"the checkpoint has no {kind}: {PROCESSOR[0]} says how the {modality} becomes numbers"
        save = f"{kind.replace(' ', '_')}.save_pretrained(DIRECTORY)"
        raise InputError(message, f"save it beside the model: {save}")


def located_source(location: Location, names: Sequence[str], companions: Sequence[str] = ()) -> LocatedSource:
    """Describe a location as a source: the files `names` shape an export, the files `companions` are only copied."""
    directory = location.directory
    for name in (*names, *companions):
        check_inside(directory, directory / name)
    digest = digest_files(directory, names)
    card = directory / CARD
    further = [*([CARD] if card.is_file() else []), *companions]
    described = digest_files(directory, further) if further else None
    if location.hub_id is None:
        files = (directory, card, *(directory / name for name in names))
        return LocatedSource(directory, digest, described=described, files=files)
    origin = {"id": location.hub_id, "revision": location.revision, "digest": str(digest)}
    return LocatedSource(directory, digest, Source.from_json(origin), described)


def require_weights(directory: Path) -> None:
    """Raise InputError if a checkpoint directory has no weights."""
    if not weight_files(directory):
        hint = "its graphs are exported already: reg import" if any(directory.glob("*.onnx")) else SAVED
        raise InputError(f"the checkpoint has no weights: neither {' nor '.join(WEIGHTS)}", hint)


def read_config(directory: Path) -> dict[str, Any]:
    """Read the config.json of a checkpoint directory.

    Raises InputError if the file is missing or malformed, or counts over `MAX_COUNT` parts, which would take hours to make.
    """
    value = read_object(directory / CONFIG)
    if not value:
        raise InputError(f"the checkpoint has no {CONFIG} that can be read", SAVED)
    parts = [value]
    while parts:
        for key, child in parts.pop().items():
            numbers = child if isinstance(child, list) else [child]
            parts += [number for number in numbers if isinstance(number, dict)]
            if COUNTS.search(key) and any(isinstance(n, int | float) and n > MAX_COUNT for n in numbers):
                message = f"{CONFIG} of the checkpoint has {key} {str(child)[:80]}, the most is {MAX_COUNT:,}"
                raise InputError(message, "give the config.json that the model was trained with")
    return value


def _code_names(value: Any, is_inside: bool = False) -> Iterator[str]:
    """Yield the references to code under every `auto_map` in a JSON value: `[<repository>--]<module>.<class>`."""
    if isinstance(value, dict | list):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _code_names(child, is_inside or key == "auto_map")
    elif is_inside:
        yield str(value)


def refuse_own_code(directory: Path, trusted: bool) -> None:
    """Raise InputError if a checkpoint needs untrusted code, or code of another repository, which the digest would not cover."""
    for name in (CONFIG, "tokenizer_config.json"):
        names = list(_code_names(read_object(directory / name)))
        if names and not trusted:
            message = f"the checkpoint wants its own code to run ({name} has an auto_map)"
            raise InputError(message, "read that code, then pass --trust-remote-code")
        if foreign := [text for text in names if "--" in text]:
            message = "the checkpoint wants code of another repository to run"
            hint = "copy that code beside the checkpoint, and name it in the auto_map without a repository"
            raise InputError(f"{message}: {name} names {foreign[0][:80]!r}", hint)


def load_model(directory: Path, head: TaskHead, trust_remote_code: bool = False) -> Any:
    """Load the torch module of a checkpoint.

    Raises HostError if the model that config.json describes does not fit into the free memory, InputError if trained weights
    are missing, unused, or of other shapes.
    """
    import pickle

    import torch
    import transformers

    auto = getattr(transformers, f"AutoModel{head.suffix if head.auto is None else head.auto}")
    options: Any = {"local_files_only": True, "trust_remote_code": trust_remote_code}
    size: int | None = None
    with suppress(Exception), silent_transformers(), torch.device("meta"):  # shapes without numbers
        config = transformers.AutoConfig.from_pretrained(directory, **options)
        shapes = auto.from_config(config, attn_implementation="eager", trust_remote_code=trust_remote_code)
        size = PARAMETER_BYTES * sum(tensor.numel() for tensor in shapes.parameters())
    require_memory(size, f"a model of the sizes in {CONFIG}")  # if unknown, the error at loading says why
    try:
        with silent_transformers():
            model, report = auto.from_pretrained(
                directory,
                dtype=torch.float32,
                attn_implementation="eager",
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                weights_only=True,
                **options,
            )
    except pickle.UnpicklingError as error:
        message = "the pickle checkpoint holds more than tensors and was not loaded"
        raise InputError(message, "save the weights as safetensors where they were trained") from error
    except Exception as error:
        raise unloadable("the checkpoint", directory, error) from error
    parts = {model.base_model_prefix, *(name for name, _ in model.named_children())}
    trained = f"export {head.description} that was saved after it was trained"
    described = "config.json must describe the model that was trained; delete weights that it does not use from the file"
    for problem, hint, names in (
        ("the checkpoint has no values for", trained, [
            name for name in report["missing_keys"]
            if not ONLY_FOR_TRAINING.search(name) and (head.suffix or name.partition(".")[0] != "pooler")
        ]),
        ("the checkpoint's shapes differ from its config for", trained, [
            str(entry[0]) for entry in report["mismatched_keys"]
        ]),
        (f"{type(model).__name__} has no place for trained weights of the checkpoint:", described, [
            name for name in report["unexpected_keys"]
            if not NOT_TRAINED.search(name) and (head.suffix or name.partition(".")[0] in parts)
        ]),
    ):  # fmt: skip
        if names:
            raise InputError(f"{problem} {some(sorted(names))}", hint)
    return model.eval()


def some(names: Sequence[str], most: int = 6) -> str:
    """Join the first names of a list as text, with the number of further names."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def unloadable(
    part: str, directory: Path, error: Exception, hint: str = "copy its files again, all of one model"
) -> InputError:
    """Make the error for a part that transformers cannot load, without the path. Raise HostError if a package is absent."""
    refuse_missing(error, part)
    reason = why(error, 300).replace(str(directory), "the checkpoint")
    return InputError(f"{part} could not be loaded: {reason}", hint)


def load_tokenizer(directory: Path, trust_remote_code: bool) -> Any:
    """Load a fast tokenizer that agrees with `tokenizer.json` and does not pad or truncate unasked; InputError without one."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(
            directory, use_fast=True, local_files_only=True, trust_remote_code=trust_remote_code
        )
        if (directory / TOKENIZER_FILE).is_file() and tokenizer.is_fast:
            tokenizer = _as_in_file(tokenizer, directory)
    except Exception as error:
        hint = f"the checkpoint must hold a {TOKENIZER_FILE}"
        raise unloadable("the tokenizer of the checkpoint", directory, error, hint) from error
    if not tokenizer.is_fast:
        message = f"{type(tokenizer).__name__} has no fast form, so there is no {TOKENIZER_FILE} to ship"
        raise InputError(message, "convert the tokenizer with transformers and save it beside the checkpoint")
    if not tokenizer.get_vocab().keys() - set(tokenizer.all_special_tokens):
        message = "the checkpoint has no tokenizer: nothing but special tokens is in its vocabulary"
        raise InputError(message, SAVE_TOKENIZER)
    # A padding or truncation baked into tokenizer.json would make every app run at full length.
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.backend_tokenizer.no_truncation()
    return tokenizer


def _as_in_file(tokenizer: Any, directory: Path) -> Any:
    """Return the tokenizer if `tokenizer.json` encodes alike, else one made from the file, with the special tokens of both."""
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    file = Tokenizer.from_file(str(directory / TOKENIZER_FILE))
    if _encoded(file) == _encoded(tokenizer.backend_tokenizer):
        return tokenizer
    plain = PreTrainedTokenizerFast.from_pretrained(directory, local_files_only=True)
    for name, token in tokenizer.special_tokens_map.items():
        is_in_file = isinstance(token, str) and file.token_to_id(token) is not None
        if is_in_file and getattr(plain, name, None) is None:
            setattr(plain, name, token)
    if file.post_processor is not None:
        plain.backend_tokenizer.post_processor = file.post_processor
    return plain


def _encoded(backend: Any) -> list[Any]:
    """Return what two equal tokenizers (`tokenizers.Tokenizer`) share: vocabulary, normalized trial texts, and encodings."""
    backend.no_padding()
    backend.no_truncation()
    normalizer = backend.normalizer
    encodings = [*map(backend.encode, TRIAL_TEXTS), backend.encode(*TRIAL_TEXTS[:2])]
    return [
        backend.get_vocab(),
        [text if normalizer is None else normalizer.normalize_str(text) for text in TRIAL_TEXTS],
        [(one.ids, one.type_ids, one.offsets) for one in encodings],
    ]
