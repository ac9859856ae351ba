"""Make the dossier of a version by a profile, with the owner's facts, and write it as a directory."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from onnxreg.registry.dossier.tables import RULES, Cell, VersionTables
from onnxreg.registry.store.protocol import RegistryReader
from onnxreg.registry.transfer.export_files import replacing
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, missing_extra, suggest
from onnxreg.schema.core.given_file import read_given
from onnxreg.schema.core.ref import POLICY_LOG, Ref
from onnxreg.schema.core.text_files import read_yaml
from onnxreg.schema.dossier.profile import DossierProfile, OwnerFacts, ProfileField

EXTRA, DOCUMENT, PAGE = "dossier", "dossier.json", "dossier.html"
FACTS_FILE = "owner.yaml"
"""The name of the owner's file in the directory of a dossier."""
HERE = Path(__file__).parent
MAX_VALUE_CHARS = 240
"""Characters of a value on the page; `dossier.json` has all."""
NOTICE = (
    "This document is a template filled in from a registry. It is not legal advice, and it does not show that a law is met: "
    "that is for a person to judge."
)


class DossierBundle(NamedTuple):
    """A dossier, the document `dossier.json`, with all its files by name."""

    dossier: dict[str, Any]
    files: Mapping[str, bytes]


def make_dossier(reader: RegistryReader, ref: Ref, profile: str, facts: Path | None = None) -> DossierBundle:
    """The dossier of a version. The registry's state, profile, facts and trust file determine every byte.

    IntegrityError or GateError if a signature or a promotion is not what it claims to be.
    """
    form, form_digest = load_profile(profile)
    owner, data = (None, b"") if facts is None else read_facts(facts, form)
    version = VersionTables(reader, ref)
    name, registry = version.ledger.name, version.ledger.registry
    if owner is not None and owner.name != name:
        raise InputError(f"the facts are about {owner.name}, not {name}")
    sections = [
        section.model_dump(include={"title", "number", "note"}, exclude_none=True)
        | {"fields": [_field(version, field, owner) for field in section.fields]}
        for section in form.sections
    ]
    heads = {name: version.lines[-1:], POLICY_LOG: version.policies.lines[-1:]}
    keys = {
        key.name or key_id: str(key.key)
        for key_id, key in version.trust.keys.items()
        if key_id in version.keyids
    }
    dossier = {
        "format": "onnxreg-dossier",
        "format_version": 1,
        "notice": NOTICE,
        "profile": form.model_dump(include={"name", "title", "basis"}, exclude_none=True)
        | {"digest": str(form_digest)},
        "subject": {"registry": registry, "name": name, "version": str(version.version)}
        | {"manifest": str(version.digest), "channels": version.channels},
        "logs": {log: {"line": line.seq, "digest": str(line.digest)} for log in heads for line in heads[log]},
        "rules": RULES,
        "sections": sections,
        "keys": [{"name": name, "key": key} for name, key in sorted(keys.items())],
    }
    files = {}
    if owner is not None:
        dossier["facts"] = {"file": FACTS_FILE, "digest": str(Digest.of(data))}
        files[FACTS_FILE] = data
    document = canonical.encode(msgspec.to_builtins(dossier))
    return DossierBundle(dossier, {DOCUMENT: document, PAGE: render(dossier), **files})


def _field(version: VersionTables, field: ProfileField, owner: OwnerFacts | None) -> dict[str, Any]:
    """A field of the profile: generated tables, the owner's words, or nothing."""
    about = field.model_dump(include={"label", "point", "help"}, exclude_none=True)
    if field.owner is None:
        tables = version.of_field(field)
        content = {"origin": "generated", "tables": tables}
        return about | (content if tables else {"origin": "absent", "text": ("not recorded",)})
    text = owner.paragraphs(field.owner) if owner else ()
    content = {"origin": "owner", "text": text} if text else {"origin": "absent", "text": ("not provided",)}
    return about | {"key": field.owner} | content


def cells(dossier: dict[str, Any]) -> Iterator[Cell]:
    """Every cell of a dossier, in the order of the page."""
    for field in (field for section in dossier["sections"] for field in section["fields"]):
        for table in field.get("tables", ()):
            yield from (cell for row in table.rows for cell in row)


def profile_names() -> list[str]:
    """The profiles that come with the program."""
    return sorted(path.stem for path in (HERE / "profiles").glob("*.yaml"))


def load_profile(name: str) -> tuple[DossierProfile, Digest]:
    """A profile by its name or from a file, and the digest of its file. InputError if it is malformed or unknown."""
    path = HERE / "profiles" / f"{name}.yaml" if name in profile_names() else Path(name)
    if path.suffix not in (".yaml", ".yml", ".json"):
        hint = suggest(name, profile_names()) or "name one of these, or a .yaml file"
        raise InputError(f"no profile is called {name[:80]!r}", hint)
    data = read_given(path)
    return DossierProfile.from_json(read_yaml(data, path.name, EXTRA), path.name), Digest.of(data)


def read_facts(path: Path, form: DossierProfile) -> tuple[OwnerFacts, bytes]:
    """The owner's statements in a file, and its bytes.

    NotFoundError; InputError if it is malformed, or has a key of neither the profile nor one that comes with the program.
    """
    data = read_given(path)
    facts = OwnerFacts.from_json(read_yaml(data, path.name, EXTRA), path.name)
    allowed = form.owner_keys().union(*(load_profile(name)[0].owner_keys() for name in profile_names()))
    if unknown := next((key for key in facts.statements if key not in allowed), None):
        hint = suggest(unknown, allowed) or "the page docs/dossier.md lists the fields"
        raise InputError(f"{path.name}: no profile has a field {unknown[:64]!r}", hint)
    return facts, data


def write_dossier(bundle: DossierBundle, target: Path) -> None:
    """Write all files into a directory; an earlier dossier there is replaced as a whole."""
    with replacing(target) as fresh:
        for path, data in bundle.files.items():
            (fresh / path).write_bytes(data)


def written_files(directory: Path) -> set[str]:
    """The files of an earlier dossier in a directory; empty if there is none."""
    try:
        dossier = canonical.decode((directory / DOCUMENT).read_bytes(), DOCUMENT)
        is_dossier = dossier["format"] == "onnxreg-dossier"
        return {DOCUMENT, PAGE, FACTS_FILE} if is_dossier else set()
    except (OSError, InputError, KeyError, TypeError):
        return set()


def render(dossier: dict[str, Any]) -> bytes:
    """The page, UTF-8. HostError that names the extra if jinja2 is not installed."""
    try:
        from jinja2 import Environment, FileSystemLoader

        from onnxreg.registry.server.pages.rendering import printable
    except ImportError as error:
        raise missing_extra("jinja2", EXTRA, "making the page of a dossier") from error
    environment = Environment(
        loader=FileSystemLoader(HERE / "page"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=printable,
    )
    sources: dict[str, dict[str, Any]] = {}
    for cite in (cite for cell in cells(dossier) for cite in cell.sources):
        name = f"line {cite['line']} of {cite['log']}" if "log" in cite else "blob"
        digest = cite.get("blob") or cite["digest"]
        sources.setdefault(digest, {"number": len(sources) + 1, "name": name, "digest": digest})

    def numbers(row: Iterable[Cell]) -> list[int]:
        cites = (cite for cell in row for cite in cell.sources)
        return sorted({sources[cite.get("blob") or cite["digest"]]["number"] for cite in cites})

    environment.filters["shown"] = shown
    environment.globals["numbers"] = numbers
    environment.globals["numbered"] = lambda cell: sources.get(shown(cell), {}).get("number")
    style = (HERE / "page" / "dossier.css").read_text(encoding="utf-8")
    page = environment.get_template("dossier.html")
    return page.render(dossier=dossier, style=style, sources=list(sources.values())).encode()


def shown(cell: Cell) -> str:
    """A value for people: a text as it is, a list of texts with commas, anything else as JSON; a long one is cut."""
    value = "" if cell.value is None else cell.value
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = ", ".join(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]} …"
