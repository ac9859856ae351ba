"""One model's history: events, the chain that orders them, and the state that follows from them.

An event (`Publish`, `Tag`, `Attest`, ...) is a self-contained fact. A `LogLine` puts it in order: sequence
number and digest of the line before. The `State` is the result of a replay of the log; it is the first line
of an index file, and answers most questions in one request.

Start with `events.py`, `logline.py`, `state.py`. The rules in words: docs/format.md.
Must not import: `query`, `gates`, `inputs`, `compare`, `formats`.
"""
