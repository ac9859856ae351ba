"""Words and limits of manifests: file names, roles, licences, descriptions. This module does not import pydantic.

A licence is an SPDX expression (SPDX specification, annex D) or a licence name of the Hugging Face Hub.
"""

import re

from onnxreg.schema.core.errors import InputError, nearest

FILENAME = "openmed-onnx.json"
FORMAT = "openmed-onnx"
ASIDE = ("golden", "operator-config")  # roles of files that no runtime loads
UNJUDGED = ("not evaluated",)  # `reasons` of an artifact that was not evaluated
CHANNELS = {"RGB": 3, "BGR": 3, "L": 1}  # `L` is luminance alone
# The name of a check: the largest loss of recall of any label, compared with the full-precision parent.
LOSS = "quant_recall_delta"

Tensor = tuple[str, tuple[int | None, ...]]  # element type and sizes; None for a dynamic axis

MAX_DESCRIPTION_CHARS = 500
# No control characters, no line separators, no characters that change the writing direction.
DESCRIPTION = r"^[^\u0000-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]{1,500}$"
_HUB_NAMES = (
    "afl-3.0 agpl-3.0 apache-2.0 apple-amlr apple-ascl artistic-2.0 bigcode-openrail-m bigscience-bloom-rail-1.0 "
    "bigscience-openrail-m bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear bsl-1.0 c-uda cc cc-by-2.0 cc-by-2.5 "
    "cc-by-3.0 cc-by-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 "
    "cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cc-by-nd-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc0-1.0 cdla-permissive-1.0 "
    "cdla-permissive-2.0 cdla-sharing-1.0 creativeml-openrail-m deepfloyd-if-license ecl-2.0 epl-1.0 epl-2.0 "
    "etalab-2.0 eupl-1.1 eupl-1.2 gemma gfdl gpl gpl-2.0 gpl-3.0 isc lgpl lgpl-2.1 lgpl-3.0 lgpl-lr llama2 llama3 "
    "llama3.1 llama3.2 llama3.3 llama4 lppl-1.3c mit mpl-2.0 ms-pl ncsa odbl odc-by ofl-1.1 openrail openrail++ "
    "osl-3.0 other pddl postgresql unknown unlicense wtfpl zlib"
)
HUB_NAMES = frozenset(_HUB_NAMES.split())  # the values of `license` in a model card
LICENSE_HINT = "write an SPDX expression such as 'MIT OR Apache-2.0', LicenseRef-NAME for your own, or other"


def spdx_expression(text: str) -> str | None:
    """Return an SPDX expression in its canonical spelling: `Apache-2.0` for `apache-2.0`. Return None for other text."""
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

    try:
        return str(canonicalize_license_expression(text))
    except InvalidLicenseExpression:
        return None


def comparable_license(text: str) -> str:
    """Return a licence in a form for comparison: its canonical SPDX spelling, or its text in lower case."""
    return spdx_expression(text) or text.lower()


def check_license(text: str) -> str:
    """Return a licence in its canonical spelling. Raise InputError, naming similar licences, if it is unknown."""
    if (expression := spdx_expression(text)) is not None:
        return expression
    if text.lower() in HUB_NAMES:
        return text.lower()
    if not text.strip():
        raise InputError("the licence is empty", LICENSE_HINT)
    alike = [spdx_expression(name) or name for name in nearest(text, sorted(HUB_NAMES))]
    hint = f"did you mean {' or '.join(alike)}? Else {LICENSE_HINT}" if alike else LICENSE_HINT
    raise InputError(f"no licence is called {text[:80]!r}", hint)


def hub_license(text: str) -> dict[str, str]:
    """Return a model card's fields for this licence. If the Hub does not list it, `license_name` is included."""
    name = re.sub(r"-(only|or-later)$", "", text.lower())
    return {"license": name} if name in HUB_NAMES else {"license": "other", "license_name": text.lower()}


def check_description(text: str) -> str:
    """Return a description unchanged. Raise InputError unless it is one line of plain text of the allowed length."""
    if re.fullmatch(DESCRIPTION[1:-1], text) is None:
        rule = f"one line of 1 to {MAX_DESCRIPTION_CHARS} characters, none of them a control character"
        raise InputError(f"a description is {rule}", "say what the model does, in a sentence or two")
    return text
