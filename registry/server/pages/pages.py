"""The pages for people: models, one model, one version, two versions side by side, and the history of a metric.

A page is cached until an index file, the policies or the trust file changes. Queries of people have a thread of their
own, so that apps never wait for them.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from hashlib import sha256
from itertools import islice
from sys import maxsize
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from anyio.to_thread import run_sync
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from onnxreg.registry.gates import read_policies
from onnxreg.registry.log.contents import kept_manifest, read_history
from onnxreg.registry.log.log import read_blob, read_deltas
from onnxreg.registry.resolution import ChannelStatus, channel_statuses
from onnxreg.registry.search.catalog import Catalog, find_models, total_size
from onnxreg.registry.server.answers import HTML, NO_STORE, STATUS, as_served, base_url, of_bytes
from onnxreg.registry.server.pages.rendering import HERE, POLICY, SCRIPTS, Links, environment
from onnxreg.registry.server.pages.snippets import STATIC_CLIENTS, Snippet, snippets
from onnxreg.registry.server.served_registry import Search, ServedRegistry
from onnxreg.registry.server.settings import Settings
from onnxreg.registry.store.protocol import StoredObject
from onnxreg.registry.trust.known_heads import CheckedReader, KnownHeads, load_trust
from onnxreg.registry.trust.signatures import event_details, judge_for, latest_proofs, word_of
from onnxreg.schema.compare.overview import overview
from onnxreg.schema.compare.version_history import ModelHistory, model_history
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import InputError, NotFoundError, RegError
from onnxreg.schema.core.ref import Ref, Version, check_name
from onnxreg.schema.formats.hub_layout import layout
from onnxreg.schema.gates.statements import RecordedProof
from onnxreg.schema.inputs.trust_file import Trust
from onnxreg.schema.log.events import Attest, LogLine, Publish, RolloutStep, Tag, Untag
from onnxreg.schema.log.state import ArtifactStates, State, VersionEntry
from onnxreg.schema.manifest.manifest import Artifact, Manifest
from onnxreg.schema.query.expression import Expression, ExpressionError, parse

MODELS_PER_PAGE, VERSIONS_PER_PAGE, LINES_PER_PAGE, MATCHES_PER_PAGE = 100, 50, 50, 200
MAX_HISTORY_VERSIONS, MAX_FIGURES, MAX_METRIC_LETTERS = 30, 100, 200
"""Maximum numbers for the history page of a metric: versions, links to metrics, and letters in the metric's name."""
WIDTH, HEIGHT, MARGIN = 640, 180, 24
IMAGES = "image-classification"
TRIALS = (IMAGES, "token-classification", "text-classification", "pooling", "feature-extraction")
"""The tasks of models that visitors can try. A script on the version's page runs the model in the browser."""
STATIC = HERE / "static"
Endpoint = Callable[[Request], Awaitable[Response]]


class Standing(NamedTuple):
    """A state of a version: a word such as `yanked`, the log line that caused the state, and a text for its badge."""

    word: str
    line: LogLine | None = None
    text: str = ""


class VersionRow(Struct, frozen=True):
    """A version in a list of versions. `size` is the size in bytes of the files that are here, or None if unknown."""

    version: Version
    entry: VersionEntry
    channels: Sequence[str]
    size: int | None
    standings: Sequence[Standing]
    published: LogLine
    state: State

    @property
    def revision(self) -> str:
        """The revision by which clients get the files: the version or, for a yanked version, the manifest's digest."""
        return str(self.entry.manifest if self.entry.yanked else self.version)

    def has_files(self, artifact: Artifact) -> bool:
        paths = self.entry.held
        return self.entry.gone is None and (paths is None or artifact.path in paths)

    def can_be_tried(self, manifest: Manifest) -> bool:
        """True if a browser can run and check the model. It needs golden vectors, and a tokenizer or a sample image."""
        has_vectors = any(file.role == "golden" for item in manifest.artifacts for file in item.files)
        has_tokenizer = any(file.path == "tokenizer.json" for file in manifest.files)
        image = manifest.preprocessing and manifest.preprocessing.sample
        is_whole = has_vectors and bool(image if manifest.task == IMAGES else has_tokenizer)
        return is_whole and manifest.task in TRIALS and self.entry.gone is None and not self.entry.yanked

    def states(self, manifest: Manifest) -> ArtifactStates:
        return self.state.artifact_states(manifest, self.entry)

    def best_artifact(self, manifest: Manifest) -> Artifact | None:
        """Return the smallest certified artifact that is here, else the first that is not refused."""
        states, here = self.states(manifest), filter(self.has_files, manifest.entry_artifacts)
        usable = [item for item in here if states[item.path].state != "refused"]
        certified = [item for item in usable if states[item.path].state == "certified"]
        return min(certified, key=lambda item: item.own_size, default=next(iter(usable), None))


class LogRow(NamedTuple):
    """A log line on a page. `word` names the event, `before` is the channel's previous version, `words` are details."""

    line: LogLine
    word: str
    version: Version | None
    before: Version | None
    words: Sequence[str]
    signer: str


class ModelPage:
    """A model's data for pages. Each part is read at first use. Raises NotFoundError if the model does not exist."""

    def __init__(self, registry: ServedRegistry, name: str, index: StoredObject | None) -> None:
        if index is None:
            raise NotFoundError(f"there is no model {name} here", "the first page lists those that are")
        self._registry = registry
        self.name, self.log = name, registry.log_of(name, index)
        self.order = sorted(self.log.versions, reverse=True)

    @cached_property
    def lines(self) -> Sequence[LogLine]:
        return list(self.log.lines())

    @cached_property
    def _lines_by_event(self) -> Mapping[Digest, LogLine]:
        return {line.event.id: line for line in self.lines}

    @cached_property
    def production(self) -> Sequence[ChannelStatus] | RegError:
        """The status of each channel, checked as `resolve` does, or an error if the checks cannot run."""
        try:
            return list(channel_statuses(CheckedReader(self._registry, KnownHeads()), self.log, load_trust()))
        except RegError as error:
            return error

    @property
    def move_command(self) -> str:
        """The command that sets a channel: `reg promote NAME` if a policy governs `stable`, else `reg tag NAME`."""
        with suppress(RegError):  # `production` has the error
            if read_policies(self._registry).policy.covering(self.name, "stable"):
                return f"reg promote {self.name}"
        return f"reg tag {self.name}"

    def log_rows(self, before: int | None, count: int) -> list[LogRow]:
        """Return rows for the `count` log lines before line `before` (None: the last lines), newest first."""
        judge, publishers = judge_for(self.log, load_trust()), dict[Digest, Version]()
        holders, rollouts = dict[str, Version | None](), dict[str, Version | None]()
        end = len(self.lines) if before is None else max(0, min(len(self.lines), before - 1))
        rows: list[LogRow] = []
        for line in self.lines[:end]:
            event, former = line.event, None
            version: Version | None = getattr(event, "version", None)
            if isinstance(event, Publish):
                publishers[event.manifest] = event.version
            elif isinstance(event, Attest):
                version = publishers.get(event.manifest)
            elif isinstance(event, RolloutStep):
                former = holders.get(event.tag)
                version = rollouts[event.tag] = version or rollouts.get(event.tag)
            elif isinstance(event, Tag | Untag):
                former = holders.get(event.tag)
                holders[event.tag] = event.version if isinstance(event, Tag) else None
            if line.seq > end - count:
                texts = event_details(event, line.seq, self._registry, judge)
                rows.append(LogRow(line, word_of(event), version, former, texts, str(judge.line(line))))
        return rows[::-1]

    def row(self, version: Version) -> VersionRow:
        """Return the row of a version. The most serious of its states comes first."""
        entry, summary = self.log.versions[version], self.log.state.effective_summary(version)
        by_event = self._lines_by_event
        states = [] if entry.gone is None else [Standing(entry.gone.how, by_event.get(entry.gone.event))]
        states += [Standing("yanked", by_event.get(event)) for event in sorted(entry.yanks)]
        artifacts = summary.artifacts if summary else ()
        if entry.is_refused(artifact.state for artifact in artifacts):
            count = sum(artifact.state == "refused" for artifact in artifacts)
            badge = f"{count} of {len(artifacts)} refused" if 0 < count < len(artifacts) else ""
            states.append(Standing("refused", None, badge))
        flags = {"partial": entry.held is not None, "pinned": entry.pinned}
        states += [Standing(word) for word, is_set in flags.items() if is_set]
        channels = sorted(tag for tag, channel in self.log.channels.items() if channel.version == version)
        size = None if summary is None else total_size(summary, entry.held)
        return VersionRow(version, entry, channels, size, states, self.lines[entry.seq - 1], self.log.state)

    def proofs(self, manifest: Manifest, digest: Digest) -> dict[str, RecordedProof]:
        """Return a version's recorded proofs by the artifact's path, or {} if any proof cannot be read."""
        try:
            return latest_proofs(self.log, digest, manifest, Trust())
        except RegError:
            return {}


class Pages:
    def __init__(self, registry: ServedRegistry, settings: Settings, links: Links | None = None) -> None:
        self._registry, self._settings = registry, settings
        self._search = Search(registry, settings)
        links = links or Links(urlsplit(settings.url or "").path)
        self._is_static = links.is_static
        self._templates = environment(
            registry=registry.registry_id,
            style=sha256((STATIC / "style.css").read_bytes()).hexdigest()[:16],
            **{name: getattr(links, name) for name in dir(links) if not name.startswith("_")},
        )
        for name in self._templates.list_templates():
            self._templates.get_template(name)  # now, since an update of the program may replace the files

    def routes(self) -> list[BaseRoute]:
        trial = self._settings.trial
        version = self._endpoint(self.version, POLICY if trial is None else POLICY + SCRIPTS)
        return [
            *([] if trial is None else [Mount("/try", StaticFiles(directory=trial))]),
            Route("/", self._endpoint(self.models)),
            Route("/models/{name}:{tag}", version),
            Route("/models/{org}/{name}:{tag}", version),
            Route("/models/{name}", self._endpoint(self.model)),
            Route("/models/{org}/{name}", self._endpoint(self.model)),
            Route("/diff", self._endpoint(self.diff)),
            Route("/history", self._endpoint(self.history)),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]

    def _most(self, count: int) -> int:
        return maxsize if self._is_static else count

    def _page(self, template: str, **values: Any) -> bytes:
        return self._templates.get_template(template).render(values).encode()

    def _endpoint(self, make: Callable[[Request], Awaitable[bytes]], policy: str = POLICY) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            try:
                return _with_policy(of_bytes(request, await make(request), HTML), policy)
            except RegError as error:
                return self.of_error(error, request.query_params.get("q", "").strip())

        return endpoint

    def of_error(self, error: RegError, query: str = "") -> Response:
        """Return a page about an error. If a search expression is wrong, return the search page with the expression."""
        error = as_served(error)
        html = self._page("error.html", error=error)
        if isinstance(error, ExpressionError):
            html = self._page("search.html", query=query, error=error)
        return _with_policy(Response(html, STATUS.get(error.family, 500), NO_STORE, HTML))

    async def models(self, request: Request) -> bytes:
        typed = {key: request.query_params.get(key, "").strip() for key in ("words", "after", "q")}
        if query := typed.pop("q"):
            return await self._search.ask(partial(self._matches, query, parse(query)), artifacts=True)

        def make(catalog: Catalog) -> bytes:
            most = self._most(MODELS_PER_PAGE)
            models, count = find_models(catalog, self._registry, **typed, limit=most + 1)
            more, damages = models[most - 1].name if len(models) > most else None, catalog.damages()
            models = models[:most]
            return self._page(
                "models.html", typed=typed, count=count, models=models, more=more, damages=damages
            )

        return await self._search.ask(make, ("page", *typed.values()))

    def _matches(self, query: str, expression: Expression, catalog: Catalog) -> bytes:
        matches = list(islice(catalog.query(expression), MATCHES_PER_PAGE + 1))
        shown, more = matches[:MATCHES_PER_PAGE], len(matches) > MATCHES_PER_PAGE
        damages = catalog.damages(artifacts=True)
        return self._page("search.html", query=query, error=None, matches=shown, more=more, damages=damages)

    async def _of_model(self, name: str, make: Callable[[ModelPage], bytes], *key: object) -> bytes:
        def read(index: StoredObject | None) -> bytes:
            return make(ModelPage(self._registry, name, index))

        return await run_sync(lambda: self._registry.answer((*key, *self._registry.rule_keys()), name, read))

    async def model(self, request: Request) -> bytes:
        name = check_name(request.scope["path"].removeprefix("/models/"))
        older, before = request.query_params.get("older"), request.query_params.get("before")
        if before is not None and not re.fullmatch(r"[0-9]{1,15}", before):
            raise InputError(f"before is {before[:40]!r}", "the number of a line of the log")
        start = None if older is None else Version.parse(older)
        line = None if before is None else int(before)

        def make(model: ModelPage) -> bytes:
            newest = model.log.state.newest_release()
            manifest = kept_manifest(model.log, newest) if newest else None
            remaining = [version for version in model.order if start is None or version < start]
            log, most = model.log_rows(line, self._most(LINES_PER_PAGE)), self._most(VERSIONS_PER_PAGE)
            return self._page(
                "model.html",
                model=model,
                name=name,
                newest=model.row(newest) if newest else None,
                manifest=manifest,
                rows=[model.row(version) for version in remaining[:most]],
                older=remaining[most - 1] if len(remaining) > most else None,
                log=log,
                earlier=log[-1].line.seq if log and log[-1].line.seq > 1 else None,
                first=start is None and line is None,
            )

        return await self._of_model(name, make, "model", name, start, line)

    async def version(self, request: Request) -> bytes:
        ref = Ref.parse(request.scope["path"].removeprefix("/models/"))
        base = self._settings.url if self._is_static else base_url(request, self._settings)

        def make(model: ModelPage) -> bytes:
            row = model.row(model.log.find(ref, yanked=True, gone=True).version)
            manifest = kept_manifest(model.log, row.version)
            files = {file.digest: file for file in manifest.all_files()} if manifest else {}
            deltas = read_deltas(partial(read_blob, self._registry), row.entry.deltas)
            older = model.order[model.order.index(row.version) + 1 :]
            return self._page(
                "version.html",
                name=ref.name,
                row=row,
                manifest=manifest,
                proofs=model.proofs(manifest, row.entry.manifest) if manifest else {},
                snippets=self._snippets(model, row, manifest, base) if manifest and base else [],
                updates=[(files[delta.new], delta) for delta in deltas if delta.new in files],
                previous=older[0] if older else None,
                trial=bool(self._settings.trial and manifest and row.can_be_tried(manifest)),
            )

        return await self._of_model(ref.name, make, "version", ref, base)

    def _snippets(self, model: ModelPage, row: VersionRow, manifest: Manifest, base: str) -> list[Snippet]:
        artifact, digest = row.best_artifact(manifest), row.entry.manifest
        if artifact is None:
            return []
        states = {path: state.state for path, state in row.states(manifest).items()}
        files = layout(manifest, digest, row.entry.size, states, row.entry.held, refused=True)
        tag = None if row.entry.yanked else str(row.version)
        guarded = self._settings.token is not None
        channel = next(iter(row.channels), None)
        command = None if channel else model.move_command
        lines = snippets(base, model.name, tag, channel, command, digest, manifest, artifact, files, guarded)
        return [snippet for snippet in lines if not self._is_static or snippet.client in STATIC_CLIENTS]

    async def diff(self, request: Request) -> bytes:
        texts = [request.query_params.get(side, "") for side in ("old", "new")]
        if not all(texts):
            raise InputError("Two versions are compared", "choose them on the page of a model")
        old, new = map(Ref.parse, texts)
        token = await run_sync(self._registry.token, old.name)

        def make(model: ModelPage) -> bytes:
            other = ModelPage(self._registry, old.name, self._registry.read_index(old.name))
            before, after = _side(other, old), _side(model, new)
            difference, screen = overview(before.manifest, after.manifest, (before.states, after.states))
            return self._page("diff.html", old=before, new=after, diff=difference, screen=screen)

        return await self._of_model(new.name, make, "diff", old, new, token)

    async def history(self, request: Request) -> bytes:
        name = check_name(request.query_params.get("model", ""))
        metric = request.query_params.get("metric", "")[:MAX_METRIC_LETTERS] or None

        def make(model: ModelPage) -> bytes:
            history = model_history(name, read_history(model.log, MAX_HISTORY_VERSIONS), metric)
            artifacts = [artifact for row in history.versions for artifact in row.artifacts]
            names = list(dict.fromkeys(figure for item in artifacts for figure in item.figures))[:MAX_FIGURES]
            return self._page("history.html", history=history, chart=history_chart(history), figures=names)

        return await self._of_model(name, make, "history", name, metric)


class Side(NamedTuple):
    ref: Ref
    manifest: Manifest
    row: VersionRow
    states: ArtifactStates


def _side(model: ModelPage, ref: Ref) -> Side:
    row = model.row(model.log.find(ref, yanked=True, gone=True).version)
    manifest = kept_manifest(model.log, row.version)
    if manifest is None:
        raise NotFoundError(f"{ref} was taken down, its manifest too", "there is nothing left to compare")
    return Side(Ref(ref.name, str(row.version)), manifest, row, row.states(manifest))


def history_chart(history: ModelHistory) -> dict[str, Any] | None:
    """Return a chart: `low`, `high` and `points` (x, y, interval or None, row). Fewer than two points give None."""
    rows = [row for row in reversed(history.versions) if history.is_charted(row)]
    if len(rows) < 2:
        return None
    numbers = [number for row in rows for number in (row.value or 0.0, *(row.interval or ()))]
    low, high = min(numbers), max(numbers)

    def y(value: float) -> float:
        share = (value - low) / (high - low) if high > low else 0.5
        return HEIGHT - MARGIN - share * (HEIGHT - 2 * MARGIN)

    step = (WIDTH - 2 * MARGIN) / (len(rows) - 1)
    ends = [[y(end) for end in row.interval] if row.interval else None for row in rows]
    points = [(MARGIN + at * step, y(row.value or 0.0), ends[at], row) for at, row in enumerate(rows)]
    return {"points": points, "low": low, "high": high}


def _with_policy(response: Response, policy: str = POLICY) -> Response:
    response.headers["Content-Security-Policy"] = f"{policy}; frame-ancestors 'none'"
    response.headers["Referrer-Policy"] = "same-origin"
    return response
