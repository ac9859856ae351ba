"""One model's history: events, the lines of the log that order them, and the state computed from them.

An event (`Publish`, `Tag`, `Attest`, ...) is a fact. A `LogLine` is an event with a number and the digest of the
previous line. The `State` is the first line of an index file, and answers most questions in one request.

Start with `events.py`, then `state.py`. The rules in words: docs/format.md. Must not import: `query`, `gates`,
`inputs`, `compare`, `formats`.
"""
