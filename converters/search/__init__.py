"""The search for the smallest artifact that passes an evaluation.

A `Candidate` is a line of passes; `plan_search` checks suites and candidates before any work; `Search` makes candidates,
judges them on one suite and picks the winner. The plan that it gives is an ordinary one, with the winner's steps and the
other suite, so a rebuild repeats the winner's path.

Start with `search.py`. Must not import `cli` or `registry`; nothing in `engine` runs a search.
"""

from onnxreg.converters.search.search import check_search, run_with_search

__all__ = ["check_search", "run_with_search"]
