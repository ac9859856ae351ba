"""`reg doctor --live`: every promise that a registry relies on, tried at the place itself.

A `Trial` is one promise; each kind of place has a module of trials. `conformance.py` runs them and cleans up.

Start with `conformance.py`.
"""
