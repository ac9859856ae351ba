"""Limits on documents and lists from outside. Larger input is refused, if possible before it is read."""

MAX_DOCUMENT_BYTES = 64 * 2**20
"""The most bytes of a file that the user names, and of a document of a registry, such as an index file."""
MAX_RECORD_BYTES = 16 * 2**20
"""The most bytes of a manifest, an envelope or a statement."""
MAX_TEXT_BYTES = 4 * 2**20
"""The most bytes of a recipe, a policy or another file in TOML, YAML or JSON that a person writes."""
BYTES_PER_VALUE = 16
"""A record may have one JSON value for each 16 bytes of its size limit. So a list of zeros cannot exhaust the memory."""
MAX_DEPTH = 64
"""The most levels of nesting in a record, and of brackets and `not` in an expression."""
MAX_PATH_CHARS, MAX_PATH_PARTS = 1024, 32
MAX_MEMBERS = 10_000
"""The most artifacts of a manifest, and members of a family."""
MAX_STAGES, MAX_METRICS, MAX_PIECES = 64, 32, 256
"""The most stages of a pipeline, the most metrics in an artifact's summary, and the most pieces of a file."""
MAX_EVENT_BYTES = 63 * 1024
MAX_LINE_BYTES = MAX_EVENT_BYTES + 1024
"""The most bytes of a log line: an event, the line's number, its links and a signature of usual length."""
MAX_SIGNATURE_BYTES, MAX_SIGNATURES = 16 * 1024, 64
"""The most bytes of a log line's signature, and the most signatures of an envelope."""
MAX_STATEMENTS = 64
"""The most statements about a version that an import from an OCI registry records. Anybody who may write there can add some."""
MAX_OCI_BYTES = 4 * 2**20
"""The most bytes of an OCI manifest, an OCI index or a page of referrers (OCI distribution specification)."""
MAX_REFERRER_BYTES, MAX_REFERRER_PAGES = 16 * 2**20, 1000
"""The most bytes and pages of a whole list of referrers."""
MAX_DELTAS = 256
"""The most deltas of a version; one line of the log lists their blobs."""
MAX_DELTA_HEADER_BYTES, MAX_OLD_FILES = 64 * 1024, 16
"""The most bytes of a delta's header, and the most old files that a delta reads."""
MAX_ARCHIVE_MODELS, MAX_ARCHIVE_FILES, MAX_HUB_FILES = 10_000, 250_000, 1_000_000
"""The most models of an archive, the most files of an archive, and the most files of one commit on the Hub."""
MAX_CATALOG_BYTES, MAX_CATALOG_LINE_BYTES = 2**27, 4 * 2**20
"""The most bytes of an uncompressed catalog, and of one of its lines."""
MAX_CATALOG_MODELS, MAX_CATALOG_ARTIFACTS = 200_000, 1_000_000
MAX_EXPRESSION_CHARS, MAX_DIGITS = 4096, 15
"""The most characters of an expression, and the most digits of a number in it. A double holds 15 digits exactly."""
MAX_SPEEDS, MAX_MACHINES, MAX_MACHINE_CHARS = 32, 8, 80
"""The most timed artifacts of a version, the most machines of an artifact, and the most characters of `isa` and `runtime`."""
MAX_CONDITIONS = 100
"""A query document has at most this many formats, this many contracts, and this many labels with a minimum recall."""
