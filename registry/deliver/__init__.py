"""Answers that an app acts on: resolved, and checked for rollback, signatures and gates.

`resolution` finds the artifact that answers a query, `trusted_read` also checks that it may be used, and
`coverage` does both for a fleet of devices.

Start with `trusted_read.py`.
Must not import: `transfer` or anything above it.
"""
