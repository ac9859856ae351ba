"""Answers that an app acts on: resolved, and checked for rollback, signatures and gates.

`resolution` finds the artifact that answers a query and checks that it may be used; `coverage` does both for a
fleet of devices.

Start with `resolution.py`.
Must not import: `transfer` or anything above it.
"""
