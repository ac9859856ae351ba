"""The answers of `reg run --text`: for programs, and as tables for people."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from onnxreg.cli.context import Session
from onnxreg.cli.render import output

if TYPE_CHECKING:
    from onnxreg.converters.texts.run_texts import ClassScores, TextAnswer, TextVector, TextVectors

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


def show(session: Session, answer: "TextAnswer", texts: Sequence[str]) -> None:
    """Print an answer for people."""
    from onnxreg.converters.texts.run_texts import ClassScores, ContextAnswer, GreedyCompletion, TextVectors

    match answer:
        case ClassScores():
            _show_classes(session, answer)
        case ContextAnswer():
            row = (output.printable(answer.text), answer.start, answer.end, f"{answer.score:.4f}")
            session.table(("ANSWER", "START", "END", "SCORE"), [row])
        case TextVectors():
            _show_vectors(session, answer)
        case GreedyCompletion():
            session.say(*map(output.printable, f"{texts[0]}{answer.text}".splitlines()))
            end = "the model" if answer.finish == "end" else "--max-tokens"
            session.say("", f"{output.counted(answer.tokens, 'token')} follow the text; {end} ended it")
        case None:
            session.say("the context has no answer")
        case _:
            session.table(
                ("LABEL", "START", "END", "TEXT"), [(s.label, s.start, s.end, s.text) for s in answer]
            )
            if not answer:
                session.say("no labelled spans")


def _show_classes(session: Session, answer: "ClassScores") -> None:
    shown = answer.scores[:MAX_CLASSES]
    session.table(("LABEL", "SCORE"), [(output.printable(label), f"{score:.4f}") for label, score in shown])
    if len(shown) < len(answer.scores):
        session.say(f"... and {len(answer.scores) - len(shown)} more; --json has them all")
    _say_cut(session, answer.is_cut)


def _show_vectors(session: Session, answer: "TextVectors") -> None:
    """The vectors of the texts: the tokens of a single text, or the similarities of several."""
    session.table(("TEXT", "SIZE", "FIRST VALUES"), [_vector_row(item) for item in answer.vectors])
    first = answer.vectors[0]
    if len(answer.vectors) > 1:
        cosines = answer.similarity
        header = ("COSINE", *(f"TEXT {number}" for number in range(1, len(cosines) + 1)))
        rows = [(f"text {number}", *(f"{c:.4f}" for c in row)) for number, row in enumerate(cosines, 1)]
        session.say("")
        session.table(header, rows)
    elif first.tokens is not None:
        offsets = first.row.offsets.tolist()
        rows = [
            (output.printable(token), *offsets[number], first_values(first.tokens[number]))
            for number, token in enumerate(first.row.tokens)
        ]
        session.say("")
        session.table(("TOKEN", "START", "END", "FIRST VALUES"), rows)
    if answer.pooling == "mean":
        session.say("", "the graph gives a vector for each token; a text's is their mean")
    if answer.prompt:
        session.say("", f"before each text: {output.printable(answer.prompt)}")
    _say_cut(session, any(item.row.is_cut for item in answer.vectors))


def _vector_row(item: "TextVector") -> tuple[object, ...]:
    text = output.printable(item.text)
    text = f"{text[: MAX_TEXT_CHARACTERS - 3]}..." if len(text) > MAX_TEXT_CHARACTERS else text
    return text, len(item.vector), first_values(item.vector)


def first_values(values: Iterable[float | int | None]) -> str:
    """The first numbers of an array, for people."""
    numbers = list(values)
    shown = [f"{value:.4g}" if isinstance(value, float) else str(value) for value in numbers[:MAX_VALUES]]
    return " ".join(shown) + (" ..." if len(numbers) > MAX_VALUES else "")


def _say_cut(session: Session, is_cut: bool) -> None:
    if is_cut:
        session.say("", CUT)
