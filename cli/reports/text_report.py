"""The answers of `reg run --text`: for programs, and as tables for people."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from onnxreg.cli.render import output

if TYPE_CHECKING:
    from onnxreg.converters.texts.run_texts import TextAnswer, TextVector, TextVectors

MAX_VALUES, MAX_CLASSES, MAX_TEXT_CHARACTERS = 6, 10, 40
"""The most that people are shown of a vector, of the classes of a text, and of a text in a table."""
CUT = "the text is longer than the model takes: its end was not read"


def to_json(answer: "TextAnswer") -> dict[str, Any]:
    """The documented keys of `reg run --text --json`."""
    from onnxreg.converters.texts.run_texts import ContextAnswer

    if isinstance(answer, list):
        return {"spans": [span.to_json() for span in answer]}
    if answer is None or isinstance(answer, ContextAnswer):
        return {"answer": None if answer is None else answer.to_json()}
    return answer.to_json()


def lines(answer: "TextAnswer", texts: Sequence[str]) -> Iterator[str]:
    """An answer for people."""
    from onnxreg.converters.texts.run_texts import ClassScores, ContextAnswer, GreedyCompletion, TextVectors

    match answer:
        case ClassScores():
            shown = answer.scores[:MAX_CLASSES]
            rows = [(output.printable(label), f"{score:.4f}") for label, score in shown]
            yield from output.table(("LABEL", "SCORE"), rows)
            if len(shown) < len(answer.scores):
                yield f"... and {len(answer.scores) - len(shown)} more; --json has them all"
            yield from ["", CUT] if answer.is_cut else []
        case ContextAnswer():
            row = (output.printable(answer.text), answer.start, answer.end, f"{answer.score:.4f}")
            yield from output.table(("ANSWER", "START", "END", "SCORE"), [row])
        case TextVectors():
            yield from _vector_lines(answer)
        case GreedyCompletion():
            yield from map(output.printable, f"{texts[0]}{answer.text}".splitlines())
            end = "the model" if answer.finish == "end" else "--max-tokens"
            yield from ("", f"{output.counted(answer.tokens, 'token')} follow the text; {end} ended it")
        case None:
            yield "the context has no answer"
        case _:
            spans = [(span.label, span.start, span.end, span.text) for span in answer]
            yield from output.table(("LABEL", "START", "END", "TEXT"), spans)
            if not answer:
                yield "no labelled spans"


def _vector_lines(answer: "TextVectors") -> Iterator[str]:
    """The vectors of the texts: the tokens of a single text, or the similarities of several."""
    yield from output.table(("TEXT", "SIZE", "FIRST VALUES"), [_vector_row(item) for item in answer.vectors])
    first = answer.vectors[0]
    if len(answer.vectors) > 1:
        cosines = answer.similarity
        header = ("COSINE", *(f"TEXT {number}" for number in range(1, len(cosines) + 1)))
        rows = [(f"text {number}", *(f"{c:.4f}" for c in row)) for number, row in enumerate(cosines, 1)]
        yield from ("", *output.table(header, rows))
    elif first.tokens is not None:
        offsets = first.row.offsets.tolist()
        tokens = [
            (output.printable(token), *offsets[number], first_values(first.tokens[number]))
            for number, token in enumerate(first.row.tokens)
        ]
        yield from ("", *output.table(("TOKEN", "START", "END", "FIRST VALUES"), tokens))
    if answer.pooling == "mean":
        yield from ("", "the graph gives a vector for each token; a text's is their mean")
    if answer.prompt:
        yield from ("", f"before each text: {output.printable(answer.prompt)}")
    if any(item.row.is_cut for item in answer.vectors):
        yield from ("", CUT)


def _vector_row(item: "TextVector") -> tuple[object, ...]:
    text = output.printable(item.text)
    text = f"{text[: MAX_TEXT_CHARACTERS - 3]}..." if len(text) > MAX_TEXT_CHARACTERS else text
    return text, len(item.vector), first_values(item.vector)


def first_values(values: Iterable[float | int | None]) -> str:
    """The first numbers of an array, for people."""
    numbers = list(values)
    shown = [f"{value:.4g}" if isinstance(value, float) else str(value) for value in numbers[:MAX_VALUES]]
    return " ".join(shown) + (" ..." if len(numbers) > MAX_VALUES else "")
