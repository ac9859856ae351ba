"""The `reg` command: one file per verb. A verb parses, makes one library call, and renders what came back."""

VERSION = "0.2.0"
"""Equal to the distribution's; importlib.metadata would take longer to say it than everything else `--version` does."""
COMPLETES = "_REG_COMPLETE"
"""The variable by which a shell asks for completions; an error would stand in the user's prompt."""
