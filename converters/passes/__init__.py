"""Transformations of graphs, with Olive's names and parameters.

A `Pass` has typed parameters, says what it requires, applies, and proves what it did: `ensures` reads the result back.
`pass_catalog` has ours and those of other packages; `pass_contract` is the test suite for both.

Start with `base.py`, then `graph_passes.py`. Must not import: `engine`, `tasks`, `families`, `importers`.
"""
