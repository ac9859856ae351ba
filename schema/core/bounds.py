"""Bounds of documents and lists from outside: one with more is refused, unread where its size is known."""

MAX_DOCUMENT_BYTES = 64 * 2**20
"""An index file, a checkpoint, a known head, another document of a registry, or a file that a person names."""
MAX_RECORD_BYTES = 16 * 2**20
"""A manifest, an envelope, a statement."""
MAX_TEXT_BYTES = 4 * 2**20
"""A recipe, a policy or another file in TOML, YAML or JSON that a person writes."""
BYTES_PER_VALUE = 16
"""A record may have one value for this many of its most bytes: none of ours is as dense as a list of zeros."""
MAX_DEPTH = 64
"""Levels of a record, and of brackets and `not` in an expression."""
MAX_KEY_PARTS = 32
"""Parts of a dotted key or of a table's name in TOML. The parser's time grows with their square."""
MAX_PATH_CHARS, MAX_PATH_PARTS = 1024, 32
MAX_MEMBERS = 10_000
"""Artifacts of a manifest, members of a family."""
MAX_STAGES = 64
"""Stages of a pipeline: the index file lists the artifacts of each."""
MAX_METRICS = 32
"""Metrics of an artifact in a summary: the first ones of the manifest."""
MAX_PIECES = 256
"""Pieces of a file; those of very large files are larger."""
MAX_EVENT_BYTES = 63 * 1024
MAX_LINE_BYTES = MAX_EVENT_BYTES + 1024
"""A line of a log: an event, its number, its links and a common signature."""
MAX_SIGNATURE_BYTES = 16 * 1024
MAX_SIGNATURES = 64
"""Signatures of an envelope."""
MAX_STATEMENTS = 64
"""Statements about a version that an import from an OCI registry records. Whoever may write there may add some."""
MAX_OCI_BYTES = 4 * 2**20
"""A manifest, an index or a page of referrers, as the distribution specification recommends."""
MAX_REFERRER_BYTES, MAX_REFERRER_PAGES = 16 * 2**20, 1000
"""A whole list of referrers."""
MAX_DELTAS = 256
"""Deltas of a version: one line of the log holds their blobs."""
MAX_DELTA_HEADER_BYTES, MAX_OLD_FILES = 64 * 1024, 16
"""The header of a delta, and the files that it reads."""
MAX_ARCHIVE_MODELS, MAX_ARCHIVE_FILES = 10_000, 250_000
"""Of an archive: each is looked at, by `ls` and `verify` as well."""
MAX_HUB_FILES = 1_000_000
"""Files of one commit of the Hub."""
MAX_CATALOG_BYTES, MAX_CATALOG_LINE_BYTES = 2**27, 4 * 2**20
"""A published catalog, unpacked."""
MAX_CATALOG_MODELS, MAX_CATALOG_ARTIFACTS = 200_000, 1_000_000
MAX_EXPRESSION_CHARS, MAX_DIGITS = 4096, 15
"""An expression, and a number in it: so it is exact in any language's floating point."""
MAX_CONDITIONS = 100
"""Formats, contracts, and labels with a least recall, of a query document."""
