"""Make deltas between files of two versions. docs/delta.md has the format, `onnxreg.schema.delta` its structures."""
