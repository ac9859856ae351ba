"""Limits on documents and lists from outside. A larger one is refused, without being read if its size is known."""

MAX_DOCUMENT_BYTES = 64 * 2**20
"""Bytes of an index file, a checkpoint, a known head, another document of a registry, or a file that the user names."""
MAX_RECORD_BYTES = 16 * 2**20
"""Bytes of a manifest, an envelope or a statement."""
MAX_TEXT_BYTES = 4 * 2**20
"""Bytes of a recipe, a policy or another file in TOML, YAML or JSON that a person writes."""
BYTES_PER_VALUE = 16
"""A record may have one value for each 16 bytes of its size limit; only a hostile one has more, such as a list of zeros."""
MAX_DEPTH = 64
"""Levels of nesting in a record, and of brackets and `not` in an expression."""
MAX_PATH_CHARS, MAX_PATH_PARTS = 1024, 32
MAX_MEMBERS = 10_000
"""Artifacts of a manifest, and members of a family."""
MAX_STAGES, MAX_METRICS, MAX_PIECES = 64, 32, 256
"""Stages of a pipeline, metrics of an artifact in a summary, pieces of a file (which are larger in a very large file)."""
MAX_EVENT_BYTES = 63 * 1024
MAX_LINE_BYTES = MAX_EVENT_BYTES + 1024
"""Bytes of a log line, which holds an event, the line's number, its links and a common signature."""
MAX_SIGNATURE_BYTES, MAX_SIGNATURES = 16 * 1024, 64
"""Bytes of the signature of a line, and signatures of an envelope."""
MAX_STATEMENTS = 64
"""Statements about a version that an import from an OCI registry records; anybody who can write there can add some."""
MAX_OCI_BYTES = 4 * 2**20
"""Bytes of a manifest, an index or a page of referrers, as the OCI distribution specification recommends."""
MAX_REFERRER_BYTES, MAX_REFERRER_PAGES = 16 * 2**20, 1000
"""Bytes and pages of a whole list of referrers."""
MAX_DELTAS = 256
"""Deltas of a version; one line of the log lists their blobs."""
MAX_DELTA_HEADER_BYTES, MAX_OLD_FILES = 64 * 1024, 16
"""Bytes of the header of a delta, and old files that a delta reads."""
MAX_ARCHIVE_MODELS, MAX_ARCHIVE_FILES, MAX_HUB_FILES = 10_000, 250_000, 1_000_000
"""Models and files of an archive, and files of one commit on the Hub."""
MAX_CATALOG_BYTES, MAX_CATALOG_LINE_BYTES = 2**27, 4 * 2**20
"""Bytes of a published catalog when unpacked, and of one line of it."""
MAX_CATALOG_MODELS, MAX_CATALOG_ARTIFACTS = 200_000, 1_000_000
MAX_EXPRESSION_CHARS, MAX_DIGITS = 4096, 15
"""Characters of an expression, and digits of its numbers, which floating point in any language then has exactly."""
MAX_SPEEDS, MAX_MACHINES, MAX_MACHINE_CHARS = 32, 8, 80
"""Artifacts of a version with measured speeds, classes of machines for each, and characters of a part of a class's name."""
MAX_CONDITIONS = 100
"""Formats, contracts, and labels with a minimum recall, in a query document."""
