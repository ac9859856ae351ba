"""Transformations of graphs, with Olive's names and parameters: one pass, one file.

A `Pass` has typed parameters, says what it requires, applies, and proves what it did: `ensures` reads the
result back. `pass_catalog` has ours and those of other packages (entry points); `pass_contract` is the test
suite for both. `tools` has code that several passes share.

Start with `base.py`, then `graph_passes.py`. All passes: docs/passes.md.
Must not import: `engine`, `tasks`, `families`, `importers`.
"""
