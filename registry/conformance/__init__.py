"""`reg doctor --live`: try every promise that a registry relies on, at its own store.

A `PromiseTrial` is one promise; each kind of place has a module of trials. `conformance.py` runs them and cleans up.

Start with `conformance.py`.
"""
