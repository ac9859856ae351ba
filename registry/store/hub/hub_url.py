"""The address of a registry on the Hugging Face Hub: a repository and a revision of it."""

import re
from dataclasses import dataclass

from huggingface_hub import constants
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

from onnxreg.registry.store.hub.hub_errors import one_line
from onnxreg.schema.core.errors import InputError

_URL = re.compile(
    r"hf://(?P<type>models/|datasets/)?(?P<repo>[^/@?#]+/[^/@?#]+)(?:@(?P<revision>[^@?#]+))?/?", re.DOTALL
)


@dataclass(frozen=True)
class HubUrl:
    """A repository and the branch (for reading: any revision) that holds the registry."""

    repo: str
    repo_type: str = "model"
    revision: str = constants.DEFAULT_REVISION

    @classmethod
    def parse(cls, url: str) -> "HubUrl":
        """hf://[models/ | datasets/]ORG/NAME[@REVISION]; InputError for anything else."""
        hint = "write hf://ORG/NAME or hf://ORG/NAME@BRANCH; a registry fills its repository"
        match = _URL.fullmatch(url)
        if match is None:
            raise InputError(f"not a repository on the Hugging Face Hub: {url[:200]!r}", hint)
        try:
            validate_repo_id(match["repo"])
        except HFValidationError as error:
            raise InputError(f"the Hugging Face Hub has no such name: {one_line(error)}", hint) from error
        if match["repo"].partition("/")[0] in ("models", "datasets", "spaces", "buckets"):
            raise InputError(f"{url[:200]!r} names no repository of an organisation or user", hint)
        repo_type = "dataset" if match["type"] == "datasets/" else "model"
        return cls(match["repo"], repo_type, match["revision"] or constants.DEFAULT_REVISION)

    @property
    def url(self) -> str:
        kind = "datasets/" if self.repo_type == "dataset" else ""
        branch = "" if self.revision == constants.DEFAULT_REVISION else f"@{self.revision}"
        return f"hf://{kind}{self.repo}{branch}"
