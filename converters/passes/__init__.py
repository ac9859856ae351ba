"""Transformations of graphs, with Olive's names and parameters. Start with `base.py`, then `graph_passes.py`."""
