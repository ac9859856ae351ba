"""Transformations of graphs, with Olive's names and parameters.

A `Pass` has typed parameters. It checks its input, transforms it, and checks its output. `pass_catalog` has the passes
of onnxreg and of other packages. `pass_contract` is the test suite for all of them.

Start with `base.py`, then `graph_passes.py`. Must not import: `engine`, `tasks`, `families`, `importers`.
"""
