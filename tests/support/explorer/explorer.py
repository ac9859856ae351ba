"""Every interleaving of a few programs that share an object store, found by running the programs themselves.

A program is a callable that takes a store; each call of the store is one atomic *step*. What a program does next
follows from the answers that it got so far, so its local state is a *node* of a tree of answers. To find the next step
of a node, the program runs again from its start, is given those answers, and is stopped at the first call beyond them.
That happens once for each node, whatever the others do. A *state* is the contents of the store and one node of each
program; the states are enumerated breadth first, so that the first trace found to a violation is a shortest one.

A crash needs no step of its own: a program that crashed is one that never moves again, so whatever holds in every
state holds after every crash. What only later work would reveal is shown by `Scenario.aftermath`: it runs alone on the
contents of every state, as if all the programs had crashed there.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from onnxreg.registry.store.protocol import MemoryStore
from support.explorer.replay import Contents, Fixed, Paused, Replay, ViolationError, determined, holding

Run = Callable[[Any], Hashable]
"""A program: does its work on a store and returns what became of it."""


class Numbers:
    """Gives every value a small number, in the order of arrival."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[Any, int] = {}

    def of(self, value: Hashable) -> int:
        number = self._numbers.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number


class Program:
    """The tree of everything that one program may do. `steps[node]` is its next step, None where it has ended.

    All ends with the same outcome are one node, and so are all ways to know the same; see `Replay.forget`.
    """

    def __init__(self, name: str, run: Run, fixed: Fixed, steps: Numbers, answers: Numbers) -> None:
        self.name = name
        self.steps: list[int | None] = []
        self.children: dict[tuple[int, int], int] = {}
        self.outcomes: dict[int, Hashable] = {}
        self._run, self._fixed, self._numbers, self._answers = run, fixed, steps, answers
        self._origins: list[tuple[int, int]] = []
        self._nodes: dict[Hashable, int] = {}
        self._grow([], (-1, -1))

    def child(self, node: int, answer: int) -> int:
        """Where the program is after this answer to the step of a node."""
        return self._grow([*self._path(node), answer], (node, answer))

    def _path(self, node: int) -> list[int]:
        path: list[int] = []
        while node:
            node, answer = self._origins[node]
            path.append(answer)
        return path[::-1]

    def _grow(self, path: list[int], origin: tuple[int, int]) -> int:
        replay = Replay([self._answers.values[answer] for answer in path], self._fixed)
        step, outcome = None, None
        try:
            with determined(self.name):
                outcome = self._run(replay)
        except Paused:
            step = self._numbers.of(replay.asked[-1])
        except Exception as error:  # noqa: BLE001 - how it ended; the scenario judges that
            outcome = error.__class__.__name__, str(error)
        if len(replay.asked) != len(path) + (step is not None):
            raise AssertionError(f"{self.name} swallowed a crash, or did something else this time")
        known, since = replay.known
        node = self._node(("ended", outcome) if step is None else (known, *path[since:]), step, origin)
        if step is None:
            self.outcomes[node] = outcome
        if path:
            self.children[origin] = node
        return node

    def _node(self, key: Hashable, step: int | None, origin: tuple[int, int]) -> int:
        node = self._nodes.setdefault(key, len(self.steps))
        if node == len(self.steps):
            self.steps.append(step)
            self._origins.append(origin)
        if self.steps[node] != step:
            raise AssertionError(f"{self.name} forgot what it still needs: {key}")
        return node


@dataclass(frozen=True)
class Scenario:
    """What runs, from which contents, and what must hold. The judges raise `ViolationError`.

    Args:
        contents: of the store at the start.
        programs: by name.
        fixed: what no program ever changes (this is checked).
        always: judges the contents in every state.
        onwards: judges contents before and after every step.
        ended: judges name and outcome of a program that ended just now, and the contents.
        resting: judges the contents where every program has ended.
        aftermath: runs real work alone on a copy of the contents of every state, and judges it.
        observers: programs that only read, by name. Nobody depends on them, so each is explored afterwards beside
            everything that can become of the contents; the contents may even change in more ways than they really do,
            so that a violation here may be a false alarm, but none is missed.
        names: how a trace shows long keys, by a part of them.
    """

    contents: Contents
    programs: Mapping[str, Run]
    fixed: Fixed
    always: Callable[[Contents], None]
    onwards: Callable[[Contents, Contents], None]
    ended: Callable[[str, Hashable, Contents], None]
    resting: Callable[[Contents], None]
    aftermath: Callable[[MemoryStore], None]
    observers: Mapping[str, Run] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """How much was explored, and the first violation with the steps that lead there."""

    states: int
    transitions: int
    contents: int
    nodes: int
    violation: str | None = None
    trace: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = (
            f"{self.states} states, {self.transitions} transitions, {self.contents} contents, "
            f"{self.nodes} program nodes"
        )
        steps = "".join(f"\n  {line}" for line in self.trace)
        return f"{text}: {self.violation}{steps}" if self.violation else f"{text}: no violation"


State = tuple[int, ...]


class Exploration:
    """All states of a scenario that can be reached.

    Args:
        every: the aftermath runs on every so many-th contents (0: on none).
        limit: more states than these are an error.
    """

    def __init__(self, scenario: Scenario, every: int = 1, limit: int = 50_000_000) -> None:
        self.scenario = scenario
        self.every, self.limit = every, limit
        self.steps, self.answers, self.contents = Numbers(), Numbers(), Numbers()
        self.programs = [self._program(name, run) for name, run in scenario.programs.items()]
        self.observers = [self._program(name, run) for name, run in scenario.observers.items()]
        self.effects: list[dict[int, tuple[int, int]]] = []
        self.judged: set[tuple[str, int, int]] = set()
        self.transitions = self.states = 0
        self.observer: Program | None = None
        self.latest: tuple[str, int, int] | None = None
        self.trace: list[tuple[str, int, int]] = []

    def _program(self, name: str, run: Run) -> Program:
        return Program(name, run, self.scenario.fixed, self.steps, self.answers)

    def run(self) -> Report:
        """Explore until everything is seen, or a violation."""
        violation = None
        try:
            start = self._settle(frozenset(self.scenario.contents.items()))
            self._search((start, *(0 for _ in self.programs)), self._moves)
            for observer in self.observers:
                self.observer = observer
                self._search((start, 0), partial(self._sees, observer))
        except ViolationError as found:
            violation = str(found)
        nodes = sum(len(program.steps) for program in [*self.programs, *self.observers])
        trace = tuple(self._show(*step) for step in self.trace) if violation else ()
        return Report(self.states, self.transitions, len(self.effects), nodes, violation, trace)

    def _search(self, start: State, successors: Callable[[State], Iterator[State]]) -> None:
        """Breadth first. A violation leaves the way to it in `trace`."""
        origins: dict[State, State | None] = {start: None}
        queue = deque([start])
        state = start
        try:
            while queue:
                state = queue.popleft()
                for found in successors(state):
                    if found not in origins:
                        origins[found] = state
                        queue.append(found)
                if len(origins) > self.limit:
                    raise AssertionError(f"more than {self.limit} states")
        except ViolationError:
            self._retrace(state, origins)
            raise
        finally:
            self.states += len(origins)

    def _moves(self, state: State) -> Iterator[State]:
        """Each program takes its next step."""
        store = state[0]
        for index, program in enumerate(self.programs, 1):
            step = program.steps[state[index]]
            if step is not None:
                after, child = self._move(store, state[index], program, step)
                found = (after, *state[1:index], child, *state[index + 1 :])
                if child in program.outcomes and all(
                    node in other.outcomes for other, node in zip(self.programs, found[1:], strict=True)
                ):
                    self.scenario.resting(dict(self.contents.values[after]))
                yield found

    def _sees(self, observer: Program, state: State) -> Iterator[State]:
        """Some program changes the contents, or the observer takes its next step."""
        store, node = state
        for after in {after for after, _ in self.effects[store].values()} - {store}:
            yield after, node
        step = observer.steps[node]
        if step is not None:
            assert self.steps.values[step].reads, f"{observer.name} does more than observe"
            yield self._move(store, node, observer, step)

    def _move(self, store: int, node: int, program: Program, step: int) -> tuple[int, int]:
        """The contents and the program's node after its next step."""
        self.transitions += 1
        self.latest = program.name, store, step
        effect = self.effects[store].get(step)
        if effect is None:
            effect = self._perform(store, step)
        after, answer = effect
        child = program.children.get((node, answer))
        if child is None:
            child = program.child(node, answer)
        if child in program.outcomes and (program.name, child, after) not in self.judged:
            self.judged.add((program.name, child, after))
            self.scenario.ended(program.name, program.outcomes[child], dict(self.contents.values[after]))
        return after, child

    def _perform(self, store: int, step: int) -> tuple[int, int]:
        before = dict(self.contents.values[store])
        after, answer = self.steps.values[step].perform(before)
        if after == before:
            number = store
        else:
            self.scenario.onwards(before, after)
            number = self._settle(frozenset(after.items()))
        effect = number, self.answers.of(answer)
        self.effects[store][step] = effect
        return effect

    def _settle(self, contents: frozenset[tuple[str, bytes]]) -> int:
        """The number of some contents, which are judged when they are met for the first time."""
        number = self.contents.of(contents)
        if number == len(self.effects):
            self.effects.append({})
            self.scenario.fixed.check(dict(contents))
            self.scenario.always(dict(contents))
            if self.every and number % self.every == 0:
                with determined("aftermath"):
                    self.scenario.aftermath(holding(dict(contents)))
        return number

    def _retrace(self, state: State, origins: dict[State, State | None]) -> None:
        """The steps to a state, and the one that was under way."""
        self.trace = [self.latest] if self.latest else []
        before = origins[state]
        while before is not None:
            self.trace.append(self._between(before, state))
            state, before = before, origins[before]
        self.trace.reverse()

    def _between(self, before: State, state: State) -> tuple[str, int, int]:
        programs = self.programs if self.observer is None else [self.observer]
        for program, node, child in zip(programs, before[1:], state[1:], strict=True):
            step = program.steps[node]
            if node != child and step is not None:
                return program.name, before[0], step
        (step, *_) = [step for step, (after, _) in self.effects[before[0]].items() if after == state[0]]
        return "somebody", before[0], step

    def _show(self, name: str, store: int, step: int) -> str:
        """One line on a step that a program takes."""
        text = f"{name}: {self.steps.values[step].show(self.contents.values[store])}"
        for part, short in self.scenario.names.items():
            text = text.replace(part, short)
        return text
