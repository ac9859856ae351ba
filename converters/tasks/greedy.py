"""Greedy generation by graphs in ONNX Runtime, with the rules of `generation_config.json`.

| member | file | inputs, to outputs |
|---|---|---|
| `encoder` | `encoder_model.onnx` | a text or a sound, to its hidden states |
| `decoder` | `decoder_model.onnx` | hidden states and the first tokens of the answer, to logits, keys and values |
| `decoder_with_past` | `decoder_with_past_model.onnx` | one more token, keys and values, to logits, and the decoder's keys and values |
| `decoder_merged` | `decoder_model_merged.onnx` | both decoders, switched by `use_cache_branch` |
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import msgspec

from onnxreg.converters.passes import samples
from onnxreg.converters.passes.merge_decoders import PAST, PRESENT
from onnxreg.converters.passes.model_builder import step_inputs
from onnxreg.converters.passes.samples import Feed
from onnxreg.converters.runtime.sessions import load_session
from onnxreg.converters.source.source_files import GENERATION_CONFIG, read_object
from onnxreg.schema.core.canonical import convert
from onnxreg.schema.core.errors import InputError

ENCODER, DECODER, NEXT, MERGED = "encoder", "decoder", "decoder_with_past", "decoder_merged"
STAGES = {
    ENCODER: "encoder_model.onnx",
    DECODER: "decoder_model.onnx",
    NEXT: "decoder_with_past_model.onnx",
    MERGED: "decoder_model_merged.onnx",
}
GENERATORS = ((ENCODER, MERGED), (ENCODER, DECODER, NEXT))
"""Sets of members that generate together: the encoder with the merged decoder, or with both decoders."""
HIDDEN, MASK, TOKENS = "encoder_hidden_states", "encoder_attention_mask", "input_ids"
MAX_NEW_TOKENS, MOST = 256, 4096
"""The most tokens of an answer: if the settings state no limit (as in pipelines of transformers), and in any case."""
POSITIONS = ("max_target_positions", "max_position_embeddings", "n_positions")
"""Keys of a config.json for the most tokens of a decoder."""
Tokens = tuple[int, ...]


class Rules(msgspec.Struct, frozen=True):
    """The fields of `generation_config.json` that shape a greedy answer, as in transformers, then Whisper's fields.

    `positions` is the most tokens that the decoder takes, including the prompt; None without a limit.
    """

    decoder_start_token_id: int
    eos_token_id: int | Tokens | None = None
    forced_bos_token_id: int | None = None
    forced_eos_token_id: int | Tokens | None = None
    suppress_tokens: Tokens | None = None
    begin_suppress_tokens: Tokens | None = None
    bad_words_ids: tuple[Tokens, ...] | None = None
    no_repeat_ngram_size: int | None = None
    repetition_penalty: float | None = None
    min_length: int | None = None
    min_new_tokens: int | None = None
    max_length: int | None = None
    max_new_tokens: int | None = None
    encoder_no_repeat_ngram_size: int | None = None
    sequence_bias: Any = None
    forced_decoder_ids: tuple[tuple[int, int | None], ...] | None = None
    no_timestamps_token_id: int | None = None
    lang_to_id: dict[str, int] | None = None
    task_to_id: dict[str, int] | None = None
    language: str | None = None
    task: str | None = None
    positions: int | None = None

    @classmethod
    def read(cls, config: Mapping[str, Any], stated: Path | None = None) -> Self:
        """Read the rules in `generation_config.json` (`stated`; if absent, they are in the checkpoint's config.json).

        Raises InputError if the rules are malformed, or one is not supported here.
        """
        settings = config if stated is None or not stated.is_file() else read_object(stated)
        settings = {"decoder_start_token_id": config.get("decoder_start_token_id"), **settings}
        settings["positions"] = positions_of(config)
        rules = convert({k: v for k, v in settings.items() if v is not None}, cls, GENERATION_CONFIG)
        others = {
            "encoder_no_repeat_ngram_size": rules.encoder_no_repeat_ngram_size,
            "sequence_bias": rules.sequence_bias,
            "forced_decoder_ids": rules.no_timestamps_token_id is None and rules.forced_decoder_ids,
        }
        if other := next((name for name, value in others.items() if value), None):
            message = f"the model's {GENERATION_CONFIG} has {other}, which is not followed here"
            raise InputError(message, "generate with Transformers.js or Optimum: docs/howto-speech.md")
        return rules

    def limit(self, start: int, requested: int | None) -> int:
        """Return the most tokens to generate after a prompt of `start` tokens."""
        stated = self.max_new_tokens or (self.max_length or 0) - start
        limit = min(requested or (stated if stated > 0 else MAX_NEW_TOKENS), MOST)
        return limit if self.positions is None else max(1, min(limit, self.positions - start + 1))

    def follow(self, scores: Any, ids: list[int], start: int, is_last: bool) -> None:
        """Apply the rules to the next token's scores, in transformers' order; `ids` has the prompt and the tokens generated."""
        import numpy as np

        def drop(tokens: Iterable[int]) -> None:
            scores[[token for token in tokens if 0 <= token < len(scores)]] = -np.inf

        def force(token: int | None) -> None:
            if token is not None and 0 <= token < len(scores):
                scores[:] = -np.inf
                scores[token] = 0.0

        penalty, size = self.repetition_penalty or 1.0, self.no_repeat_ngram_size or 0
        if penalty != 1.0:
            earlier = sorted(token for token in {*ids} if 0 <= token < len(scores))
            scores[earlier] = np.where(
                scores[earlier] < 0, scores[earlier] * penalty, scores[earlier] / penalty
            )
        if size > 0:
            last = ids[len(ids) - size + 1 :]
            drop(ids[at + size - 1] for at in range(len(ids) - size + 1) if ids[at : at + size - 1] == last)
        for words in self.bad_words_ids or ():
            if ids[len(ids) - len(words) + 1 :] == [*words[:-1]]:
                drop(words[-1:])
        if len(ids) < max(self.min_length or 0, start + (self.min_new_tokens or 0)):
            drop(_several(self.eos_token_id))
        if len(ids) == 1:
            force(self.forced_bos_token_id)
        if is_last:
            force(next(iter(_several(self.forced_eos_token_id)), None))
        drop(self.suppress_tokens or ())
        if len(ids) == start:
            drop(self.begin_suppress_tokens or ())


def _several(value: int | Tokens | None) -> Tokens:
    return (value,) if isinstance(value, int) else value or ()


class Generator:
    """Loaded graphs that generate: an encoder with its merged decoder or with both its decoders, or a decoder alone."""

    def __init__(self, paths: Mapping[str, Path]) -> None:
        self._paths = paths
        self._sessions = {name: load_session(path) for name, path in paths.items()}

    def decoder(self, step: int) -> str:
        """Return the member that computes the logits of a step."""
        return MERGED if MERGED in self._paths else NEXT if step and NEXT in self._paths else DECODER

    def _run(self, member: str, feed: Feed, needed: str) -> dict[str, Any]:
        outputs = samples.outputs(self._sessions[member], feed, name := self._paths[member].name)
        if needed not in outputs:
            raise InputError(
                f"{name} gives no {needed}, as a file for {member} does", "see docs/howto-speech.md"
            )
        return outputs

    def decoding(self, feed: Feed) -> Callable[[Any], Any]:
        """Run the encoder, if any. Return a function that takes the next tokens, `[rows, n]`, and gives the logits after them."""

        state, count = dict[str, Any](), 0
        if ENCODER in self._paths:
            state[HIDDEN] = self._run(ENCODER, feed, "last_hidden_state")["last_hidden_state"]
            state |= {MASK: feed["attention_mask"]} if "attention_mask" in feed else {}

        def decode(tokens: Any) -> Any:
            nonlocal count
            member, count = self.decoder(count), count + tokens.shape[1]
            feed = step_inputs(tokens, self._sessions[member].get_inputs(), state=state)
            outputs = self._run(member, feed, "logits")
            logits = outputs.pop("logits")[:, -1]
            state.update({f"{PAST}{name.removeprefix(PRESENT)}": array for name, array in outputs.items()})
            return logits

        return decode


def positions_of(config: Mapping[str, Any]) -> int | None:
    """Return the most tokens that a decoder takes; None without a limit, as in T5, where distances count."""
    decoder = config.get("decoder")  # of an encoder-decoder from images
    own = decoder if isinstance(decoder, Mapping) else config
    keys = () if "relative_attention_num_buckets" in own else POSITIONS
    return next((limit for key in keys if isinstance(limit := own.get(key), int) and limit > 0), None)


def generate(
    model: Generator, feed: Feed, rules: Rules, max_tokens: int | None = None
) -> tuple[list[int], bool]:
    """Generate an answer for one row: return the tokens after the prompt, and True if the model itself ended the answer.

    `max_tokens` is the most tokens to generate, by default the limit in the rules.
    """
    import numpy as np

    prompt = _prompt(model, feed, rules)
    limit, ends = rules.limit(len(prompt), max_tokens), _several(rules.eos_token_id)
    decode, ids, tokens = model.decoding(feed), list(prompt), prompt
    for count in range(1, limit + 1):
        scores = decode(np.array([tokens]))[0].astype(np.float64)
        rules.follow(scores, ids, len(prompt), count == limit)
        tokens = [int(scores.argmax())]
        if tokens[0] in ends:
            return ids[len(prompt) :], True
        ids += tokens
    return ids[len(prompt) :], False


def _prompt(model: Generator, feed: Feed, rules: Rules) -> list[int]:
    """Return the tokens before the answer: the start; for Whisper also language (stated or detected), task, no timestamps."""
    import numpy as np

    start, languages, tasks = rules.decoder_start_token_id, rules.lang_to_id, rules.task_to_id or {}
    is_stated = rules.task is not None or rules.language is not None
    prompt: list[int | None] = [start]
    if not is_stated and rules.no_timestamps_token_id is not None:
        prompt += [token for _, token in rules.forced_decoder_ids or ()]
    if rules.language is not None and languages:
        prompt[1:2] = [languages.get(rules.language, languages.get(f"<|{rules.language}|>"))]
    elif languages and (len(prompt) == 1 or prompt[1] is None):
        logits = model.decoding(feed)(np.array([[start]]))[0]
        ids = sorted(token for token in languages.values() if 0 <= token < len(logits))
        prompt[1:2] = [ids[int(logits[ids].argmax())] if ids else None]
    if is_stated and not {*prompt} & {*tasks.values()}:
        prompt.append(tasks.get(rules.task or "transcribe"))
    prompt.append(rules.no_timestamps_token_id)
    return list(dict.fromkeys(token for token in prompt if token is not None))
