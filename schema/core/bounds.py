"""Limits of input: the maximum sizes of documents and the maximum lengths of lists that onnxreg reads. Larger input is
refused, if possible before it is read.
"""

MAX_DOCUMENT_BYTES = 64 * 2**20  # a file that the user names, or an index file
MAX_RECORD_BYTES = 16 * 2**20  # a manifest, an envelope or a statement
MAX_TEXT_BYTES = 4 * 2**20  # a recipe, a policy, or another file in TOML, YAML or JSON that people write
BYTES_PER_VALUE = 16  # a record of n bytes may have n / 16 JSON values: a list of zeros fills no memory
MAX_DEPTH = 64  # levels of nesting in a record; brackets and `not` in an expression
MAX_PATH_CHARS, MAX_PATH_PARTS = 1024, 32
MAX_MEMBERS = 10_000  # artifacts of a manifest, or members of a family
MAX_STAGES = 64  # of a pipeline
MAX_METRICS = 32  # in an artifact's summary
MAX_PIECES = 256  # of a file
MAX_EVENT_BYTES = 63 * 1024
MAX_LINE_BYTES = MAX_EVENT_BYTES + 1024  # a log line: an event, the links, and a signature of usual length
MAX_SIGNATURE_BYTES = 16 * 1024  # of a log line
MAX_SIGNATURES = 64  # of an envelope
MAX_STATEMENTS = 64  # about one version in an OCI registry, where anybody who may write can add some
MAX_OCI_BYTES = 4 * 2**20  # an OCI manifest, an OCI index or a page of referrers
MAX_REFERRER_BYTES, MAX_REFERRER_PAGES = 16 * 2**20, 1000  # a whole list of referrers
MAX_DELTAS = 256  # of a version; one line of the log lists their blobs
MAX_DELTA_HEADER_BYTES = 64 * 1024
MAX_OLD_FILES = 16  # that a delta reads
MAX_ARCHIVE_MODELS, MAX_ARCHIVE_FILES = 10_000, 250_000
MAX_HUB_FILES = 1_000_000  # of one commit on the Hub
MAX_CATALOG_BYTES, MAX_CATALOG_LINE_BYTES = 2**27, 4 * 2**20  # uncompressed
MAX_CATALOG_MODELS, MAX_CATALOG_ARTIFACTS = 200_000, 1_000_000
MAX_EXPRESSION_CHARS = 4096
MAX_DIGITS = 15  # of a number in an expression: a double holds 15 digits exactly
MAX_SPEEDS = 32  # timed artifacts of a version
MAX_MACHINES = 8  # classes of machine on which an artifact was timed
MAX_MACHINE_CHARS = 80  # of `isa` and of `runtime`
MAX_CONDITIONS = 100  # formats, contracts, or labels with a minimum recall, in a query document
