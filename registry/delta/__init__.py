"""Files by deltas: a blob that arrives as its difference from blobs that are here (docs/delta.md).

`DeltaRoutes` decides how each file of a transfer arrives; a `DeltaTransfer` makes its bytes
from old files and a delta. If there is any doubt, the whole file is fetched. The log's
part (which deltas a version offers) is `registry/log/delta_log.py`.

Start with `routes.py`. The format is `onnxreg.schema.delta`; making is `onnxreg.converters.delta`.
Must not import: `server`, `search`, `transfer`.
"""
