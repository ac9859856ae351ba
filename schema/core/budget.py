"""A limit on the steps that one question may take: a step is one test of one value."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from onnxreg.schema.core.errors import InputError


class Budget:
    """The steps that are left."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.left = steps

    @property
    def is_spent(self) -> bool:
        return self.left < 0

    def error(self) -> InputError:
        return InputError(
            f"the question takes more than {self.steps:,} steps",
            "use fewer or simpler tests, or ask the registry itself instead of a server",
        )


_budget: ContextVar[Budget | None] = ContextVar("budget", default=None)


@contextmanager
def limited(steps: int) -> Iterator[Budget]:
    """Limit the questions inside this context to this many steps."""
    budget = Budget(steps)
    token = _budget.set(budget)
    try:
        yield budget
    finally:
        _budget.reset(token)


def current() -> Budget | None:
    """The budget of the present question, if it has one."""
    return _budget.get()


def spend(steps: int) -> None:
    """Take steps. InputError if there are not as many left."""
    budget = _budget.get()
    if budget is not None:
        budget.left -= steps
        if budget.is_spent:
            raise budget.error()
