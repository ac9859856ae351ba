"""A device: the ONNX Runtime of an app, and the phone on which the app runs. docs/resolve.md is the specification.

Rollouts: each device has a random seed of its own. From the seed, the device computes if it takes part in a rollout.
The device reports nothing to a server. docs/rollouts.md is the specification.
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import msgspec

from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import InputError, suggest
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.log.state import ArtifactSummary, Rollout, Speed, State
from onnxreg.schema.query.expression import parse
from onnxreg.schema.query.fields import FieldKind
from onnxreg.schema.query.resolve import Miss, Query, Requirements, read_document
from onnxreg.schema.query.runtimes import DOMAIN, OLDEST_FORMAT, RELEASES, Runtime, problem, runtime

if TYPE_CHECKING:
    from onnxreg.schema.manifest.operators import Build, Need

# Reads an operator set by digest. It is called only for artifacts that meet all other requirements.
OperatorSets = Callable[[Digest], "tuple[Need, ...]"]

BUILDS = ("full", "minimal")
BUILT_IN = frozenset({"ai.onnx", "ai.onnx.ml", DOMAIN})  # the operator domains of every full build
FOREIGN = frozenset({"openvino-ir"})  # ONNX Runtime does not load these
ORT_FORMATS = frozenset({"ort", "ort-android"})
# ABI -> processor family, with which the `isa` of a speed begins
FAMILIES = {
    **dict.fromkeys(("arm64-v8a", "aarch64", "arm64e"), "arm64"),
    **dict.fromkeys(("amd64", "x86-64", "x64"), "x86_64"),
    **dict.fromkeys(("armeabi-v7a", "armv7l"), "arm"),
    "wasm32": "wasm",
}


class Device(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """A device document. A field that is None is unlimited or unknown.

    `operators` is the text of the operator config of a minimal build. `domains` are the domains of operator libraries
    that the app registers. Latencies are used if they were measured on the processor family of `abi` (`arm64-v8a`).
    """

    ort: str
    name: str = ""
    build: str = "full"
    operators: str | None = None
    providers: tuple[str, ...] = ("CPU",)
    domains: tuple[str, ...] = ()
    platform: str | None = None
    abi: str | None = None
    ram: int | None = None  # in bytes
    free_space: int | None = None  # in bytes
    locale: str | None = None
    app_version: str | None = None
    max_latency_ratio: Annotated[float, msgspec.Meta(gt=0)] | None = None  # x full precision

    @classmethod
    def read(cls, value: Any) -> "Device":
        """Read a device document or the name of a preset. Raise InputError if it is malformed or contradicts itself."""
        if isinstance(value, str):
            return preset(value)
        device = read_document(value, cls, "a device")
        if device.app_version is not None:
            Version.parse(device.app_version)
        if device.build not in BUILDS:
            raise InputError(f"build is {device.build[:40]!r}", f"write {' or '.join(BUILDS)}")
        if device.build == "minimal" and device.operators is None:
            raise InputError("a minimal build has only some operators", "give its config as operators")
        if device.build == "full" and device.operators is not None:
            raise InputError("operators belongs to a minimal build", 'write "build": "minimal"')
        _ = device.runtime, device.minimal_build
        return device

    def to_json(self) -> dict[str, Any]:
        fields = msgspec.structs.asdict(self) | {"providers": [*self.providers], "domains": [*self.domains]}
        return {key: item for key, item in fields.items() if item not in (None, "", [])}

    @cached_property
    def runtime(self) -> Runtime:
        return runtime(self.ort)

    @cached_property
    def minimal_build(self) -> "Build | None":
        """The minimal build of ONNX Runtime on the device, or None for a full build."""
        if self.operators is None:
            return None
        from onnxreg.schema.manifest.operators import read_build

        return read_build(self.operators)

    def speeds(self, artifact: ArtifactSummary) -> list[Speed]:
        """Return the latencies of an artifact that were measured with ONNX Runtime on the processor family of `abi`."""
        family = None if self.abi is None else FAMILIES.get(self.abi.lower(), self.abi.lower())
        return [
            speed
            for speed in artifact.speeds
            if speed.runtime.startswith("onnxruntime") and family in (None, speed.isa.partition("+")[0])
        ]

    def is_slow(self, artifact: ArtifactSummary) -> bool:
        """True if an artifact was measured to be slower than full precision on this kind of device."""
        return any(speed.low > 1 for speed in self.speeds(artifact))

    def requirements(self, operator_sets: OperatorSets, context: int | None = None) -> Requirements:
        """Return the tests that an artifact must pass to load and fit on the device.

        `context` is the number of tokens that a decoder must keep. None means the decoder's longest context.
        """
        minimal = self.minimal_build
        shortfall = cache(lambda key: None if minimal is None else minimal.shortfall(operator_sets(key)))
        loads, domains = f"ONNX Runtime {self.ort} loads", BUILT_IN | {*self.domains}
        providers = {*map(provider, self.providers)}

        def misses(artifact: ArtifactSummary, download: int) -> Iterator[Miss]:
            number, digest = artifact.ort_format, artifact.operators
            is_ort = number is not None or artifact.format in ORT_FORMATS  # not ONNX
            if artifact.format in FOREIGN:
                yield Miss("runtime", f"is {artifact.format}, which is not for ONNX Runtime")
            if not is_ort and self.build != "full":
                yield Miss("ort-format", "is ONNX, a minimal build loads only ORT format")
            if is_ort and number is None:
                yield Miss("ort-format", "is of an ORT format whose number is not recorded")
            elif number is not None and not OLDEST_FORMAT <= number <= self.runtime.ort_format:
                numbers = f"{OLDEST_FORMAT} to {self.runtime.ort_format}"
                yield Miss("ort-format", f"is of ORT format {number}, {loads} {numbers}")
            if artifact.opset is None:
                yield Miss("opset", "has an opset that is not recorded")
            elif artifact.opset > self.runtime.opset:
                yield Miss("opset", f"has opset {artifact.opset}, {loads} up to {self.runtime.opset}")
            if not is_ort and (artifact.ir_version or 0) > self.runtime.ir:  # a number of ONNX files only
                detail = f"has ONNX IR version {artifact.ir_version}, {loads} up to {self.runtime.ir}"
                yield Miss("ir-version", detail)
            missing = [domain for domain in artifact.domains if domain not in domains]
            # for a minimal build, the test of operators includes their domains
            if missing and minimal is None:
                yield Miss("domain", f"needs operators of {' and '.join(missing)}")
            webgpu = artifact.format == "webgpu"  # all other formats run on the CPU too
            usable = (artifact.providers or ("WebGPU",)) if webgpu else ("CPU", *artifact.providers)
            if providers.isdisjoint(map(provider, usable)):
                build = " and ".join(self.providers) or "nothing"
                yield Miss("provider", f"runs on {' and '.join(usable)}, this build on {build}")
            if detail := self._memory_problem(artifact, context):
                yield Miss("ram", detail)
            if self.free_space is not None and download > self.free_space:
                yield Miss("space", f"needs {download} bytes of {self.free_space} that are free")
            if self.max_latency_ratio is not None:
                ratios = [speed.ratio for speed in self.speeds(artifact)]
                ratio = max(ratios, default=1 if artifact.precision == "float32" else None)
                if ratio is None:
                    yield Miss("latency", "has no measured latency on such a device")
                elif ratio > self.max_latency_ratio:
                    limit = f"at most {self.max_latency_ratio:g} is wanted"
                    yield Miss("latency", f"takes {ratio:.3g} times as long as full precision, {limit}")
            if DOMAIN in artifact.domains and not artifact.contrib and not webgpu:
                yield Miss("contrib", "has contrib operators that are not recorded")
            if not webgpu and (detail := problem(artifact.contrib, self.ort)):  # the table is for the CPU
                yield Miss("contrib", detail)
            if minimal is not None and digest is None:
                yield Miss("operators", "has operators that are not recorded")
            elif minimal is not None and (lack := shortfall(digest)) is not None:
                yield Miss(*lack)

        return misses

    def _memory_problem(self, artifact: ArtifactSummary, context: int | None) -> str:
        parts = (file.size for file in artifact.files if file.role == "external-data")
        size, more, kv_cache = artifact.size + sum(parts), "", artifact.kv_cache
        if kv_cache is not None:
            tokens = kv_cache.max_tokens if context is None else context
            more = f": {size} of weights, and {kv_cache.bytes_per_token} for each of {tokens} tokens"
            size += kv_cache.bytes_per_token * tokens
        fits = self.ram is None or size <= self.ram
        return "" if fits else f"has {size} bytes to hold in {self.ram} bytes of memory{more}"


def provider(name: str) -> str:
    """Normalize the name of an execution provider: `NnapiExecutionProvider` and `NNAPI` give `nnapi`."""
    short = name.lower().removesuffix("executionprovider")
    return "cpu" if short == "wasm" else short


# Older packages for phones were minimal builds, which cannot load today's ORT format.
OLDEST = (1, 16)


class RuntimePackage(msgspec.Struct, frozen=True):
    """A published package of ONNX Runtime for one platform. `absent` lists minor releases without this package."""

    name: str
    platform: str
    providers: tuple[str, ...]
    source: str
    absent: tuple[int, ...] = ()


PACKAGES = msgspec.json.decode(
    Path(__file__).with_name("packages.json").read_bytes(), type=tuple[RuntimePackage, ...]
)


def presets() -> dict[str, tuple[Device, str]]:
    """Return the presets by name: the device, and the origin of its package. Packages and releases are in order."""
    presets_by_name = {}
    for package in PACKAGES:
        for major, minor in sorted(RELEASES):
            if (major, minor) >= OLDEST and minor not in package.absent:
                release = f"{major}.{minor}"
                name = f"{package.name}-{release}"
                device = Device(release, name, providers=package.providers, platform=package.platform)
                presets_by_name[name] = device, package.source
    return presets_by_name


def preset(name: str) -> Device:
    """Return the device of the preset `name`. Raise InputError, with similar names, if there is no such preset."""
    presets_by_name = presets()
    if name in presets_by_name:
        return presets_by_name[name][0]
    listing = "see `reg builtin devices`, or name a JSON file of one device"
    hint = suggest(name, presets_by_name, listing, least=0.5)
    raise InputError(f"there is no device preset {name[:80]!r}", hint)


class ResolveRequest(NamedTuple):
    """A request to resolve: the model or version, the app's conditions, and its device.

    As JSON it is `{"ref": ..., "device": ...}` with the keys of a query. `device` is a device document or the name of a
    preset. Unknown keys are refused, because an answer that ignored a condition would be wrong.
    """

    ref: Ref
    query: Query
    device: Device | None = None

    @classmethod
    def read(cls, value: Any) -> "ResolveRequest":
        """Read a request. Raise InputError if it is malformed. A condition with the value null is ignored."""
        if not isinstance(value, dict) or not isinstance(value.get("ref"), str):
            raise InputError("a request is an object with a ref", 'write {"ref": "acme/pii-small"}')
        conditions = value.copy()
        device, ref = conditions.pop("device", None), Ref.parse(conditions.pop("ref"))
        return cls(ref, Query.read(conditions), None if device is None else Device.read(device))

    def to_json(self) -> dict[str, Any]:
        """Return the request as JSON, with the whole device instead of a preset's name, because presets may change."""
        device = {} if self.device is None else {"device": self.device.to_json()}
        return {"ref": str(self.ref), **self.query.to_json(), **device}


PARTS = 10_000  # in 100 %: a percentage with two decimals is a whole number of parts

# The fields that an expression may test.
DEVICE_FIELDS: Final[dict[str, FieldKind]] = {
    **dict.fromkeys(("name", "build", "platform", "abi", "locale"), FieldKind.TEXT),
    **dict.fromkeys(("ort", "app_version"), FieldKind.VERSION),
    **dict.fromkeys(("ram", "free_space"), FieldKind.SIZE),
    "providers": FieldKind.LIST,
}


def rollout_versions(
    state: State, tag: str | None, device: Device | None, seed: str, digest: Digest | None = None
) -> list[Version]:
    """Return a list with the version that a rollout of the channel `tag` gives to a device.

    Return [] if the device does not take part, or if the version's manifest is not `digest` (None: any). Raise
    InputError if the seed is malformed.
    """
    if re.fullmatch(r"[0-9a-f]{64}", seed) is None:
        raise InputError("a seed is not 64 lower-case hex digits", "use 32 random bytes, kept on the device")
    rollout = state.rollouts.get(tag or "")
    if rollout is None or digest not in (None, rollout.manifest):
        return []
    return [rollout.to] if admits(rollout, seed, device) else []


def admits(rollout: Rollout, seed: str, device: Device | None = None) -> bool:
    """True if the device with this seed takes part in a rollout."""
    if position(rollout.salt, seed) >= round(rollout.percent * 100) * 2**32:
        return False
    if rollout.where is None:
        return True
    return device is not None and parse(rollout.where, DEVICE_FIELDS).matches(device_values(device))


def position(salt: str, seed: str) -> int:
    """Return the position of a device in the order of a rollout: a number from 0 to 2**32 * 10,000 - 1.

    It is `PARTS` times the first 32 bits of the SHA-256 of the text `salt + seed`. The salt and the seed are texts of
    hex digits.
    """
    return int(hashlib.sha256((salt + seed).encode()).hexdigest()[:8], 16) * PARTS


def device_values(device: Device) -> dict[str, Any]:
    """Return a device's fields, such as `{"ort": "1.23.0"}`. The release of ONNX Runtime always has a patch number."""
    values = {key: getattr(device, key) for key in DEVICE_FIELDS}
    padding = ".0" if device.ort.count(".") == 1 else ""
    return values | {"ort": device.ort + padding, "providers": list(device.providers)}
