"""The pages for people: models, one model, one version, and two versions side by side. No script, no external
files.

A page follows from its URL and the index files of its models, so rendered pages are cached by both; the
entity tag is the digest of the page. The pages have their own search index, so that apps never wait for their
queries.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onnxreg.registry.log.delta_log import read_deltas
from onnxreg.registry.log.lookup import read_blob, read_consistently
from onnxreg.registry.search.release_table import ModelFilter
from onnxreg.registry.search.search_index import SearchIndex
from onnxreg.registry.server.answers import (
    HTML,
    IMMUTABLE,
    REVALIDATE,
    STATUS,
    HttpError,
    as_served,
    base_url,
    of_bytes,
)
from onnxreg.registry.server.pages import views
from onnxreg.registry.server.pages.rendering import Rendering
from onnxreg.registry.server.pages.snapshot import ModelSnapshot, UnknownModelError
from onnxreg.registry.server.pages.snippets import Snippet, SnippetSubject, snippets
from onnxreg.registry.server.questions import Search
from onnxreg.registry.server.served_registry import ServedRegistry
from onnxreg.registry.server.settings import Limits, Settings
from onnxreg.registry.store.protocol import IndexFile
from onnxreg.registry.trust.checked_reader import trust_digest
from onnxreg.schema.compare.manifests import diff
from onnxreg.schema.compare.version_history import HistoryRow, ModelHistory, model_history
from onnxreg.schema.core.errors import InputError, NotFoundError, RegError
from onnxreg.schema.core.ref import Ref, Version, check_name
from onnxreg.schema.formats.hub_layout import layout
from onnxreg.schema.manifest.manifest import Manifest
from onnxreg.schema.query.expression import parser
from onnxreg.schema.query.expression.parser import ExpressionError

MODELS_PER_PAGE, VERSIONS_PER_PAGE, LINES_PER_PAGE, MATCHES_PER_PAGE = 100, 50, 50, 200
"""Rows of each kind on one page."""
MAX_HISTORY_VERSIONS, MAX_FIGURES, MAX_METRIC_LETTERS = 30, 100, 200
"""Versions of a history, links to its figures, and letters of the name of a figure in a URL."""
FILTERS = ("task", "license", "format")
"""The filters of the first page, by their parameters in its URL."""
POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_WORDS = re.compile(r"[\w][\w ./-]*")

Make = Callable[[Request], Awaitable[bytes]]
Endpoint = Callable[[Request], Awaitable[Response]]


class Pages:
    """The pages of one registry."""

    def __init__(self, registry: ServedRegistry, settings: Settings, limits: Limits) -> None:
        self._registry = registry
        self._settings = settings
        self._rendering = Rendering(urlsplit(settings.url or "").path, registry.registry_id)
        self._search_worker = Search(registry, limits)

    def routes(self) -> list[Route]:
        return [
            Route("/", self._answered(self._models)),
            Route("/models/{name}:{tag}", self._answered(self._version)),
            Route("/models/{org}/{name}:{tag}", self._answered(self._version)),
            Route("/models/{name}", self._answered(self._model)),
            Route("/models/{org}/{name}", self._answered(self._model)),
            Route("/diff", self._answered(self._diff)),
            Route("/history", self._answered(self._history)),
            Route("/static/{file}", self._static),
        ]

    def _answered(self, make: Make) -> Endpoint:
        """An endpoint whose errors are pages too."""

        async def endpoint(request: Request) -> Response:
            try:
                html = await make(request)
            except RegError as error:
                return self.of_error(error)
            return _guarded(of_bytes(request, html, HTML, REVALIDATE))

        return endpoint

    def of_error(self, error: RegError) -> Response:
        """An error as a page; a query that cannot be parsed is shown in its search field."""
        error = as_served(error)
        if isinstance(error, MisreadError):
            html = self._rendering.page("search.html", query=error.query, error=error, instead=error.instead)
        else:
            near = error.near if isinstance(error, UnknownModelError) else ()
            html = self._rendering.page("error.html", error=error, near=near)
        status = STATUS.get(error.family, 500)
        return _guarded(Response(html, status, {"Cache-Control": "no-store"}, HTML))

    def of_bug(self) -> Response:
        """The answer to a browser after a bug; its traceback goes to the log."""
        return self.of_error(RegError("The server's log has the cause"))

    def nothing_there(self, request: Request) -> Response:
        """The answer to a browser for a path without a route."""
        return self.of_error(NotFoundError(f"There is no {request.scope['path'][:200]}"))

    async def _static(self, request: Request) -> Response:
        file = self._rendering.static.get(request.path_params["file"])
        if file is None:
            raise HttpError(404, "there is no such file", "the pages name those that there are")
        return of_bytes(request, file[0], file[1], self._settings.caching(IMMUTABLE))

    async def _models(self, request: Request) -> bytes:
        query = request.query_params.get("q", "").strip()
        if query:
            return await self._search(query)
        typed = {key: request.query_params.get(key, "").strip() for key in ("words", *FILTERS, "after")}
        return await self._search_worker.ask(
            lambda search: self._models_page(search, typed), ("page", *typed.values())
        )

    def _models_page(self, search: SearchIndex, typed: dict[str, str]) -> bytes:
        filters = {key: typed[key] for key in FILTERS}
        question = ModelFilter.of(typed["words"], **filters)
        models, count = search.find_models(question, typed["after"], MODELS_PER_PAGE + 1)
        return self._rendering.page(
            "models.html",
            typed=typed,
            is_filtered=question != ModelFilter(),
            count=count,
            models=models[:MODELS_PER_PAGE],
            more=models[MODELS_PER_PAGE - 1].listing.name if len(models) > MODELS_PER_PAGE else None,
            facets=search.facets(),
            damages=search.damages(),
        )

    async def _search(self, query: str) -> bytes:
        try:
            expression = parser.parse(query)
        except ExpressionError as error:
            raise MisreadError(query, error) from error

        return await self._search_worker.ask(lambda search: self._search_page(search, query, expression))

    def _search_page(self, search: SearchIndex, query: str, expression: parser.Expression) -> bytes:
        matches, damages = search.query(expression, "*", list, limit=MATCHES_PER_PAGE + 1)
        return self._rendering.page(
            "search.html",
            query=query,
            error=None,
            matches=matches[:MATCHES_PER_PAGE],
            more=len(matches) > MATCHES_PER_PAGE,
            damages=damages,
        )

    async def _model(self, request: Request) -> bytes:
        name = check_name(request.scope["path"].removeprefix("/models/"))
        older, before = request.query_params.get("older"), _line(request)
        start = None if older is None else Version.parse(older)

        def make(index: IndexFile | None) -> bytes:
            return self._model_page(ModelSnapshot(self._registry, name, index), start, before)

        rules = self._registry.policy_token(), trust_digest()
        return await run_sync(self._registry.answer, ("model", name, start, before, *rules), name, make)

    def _model_page(self, model: ModelSnapshot, start: Version | None, before: int | None) -> bytes:
        newest = model.state.newest_release()
        manifest = model.manifest(model.entries[newest]) if newest else None
        remaining = [version for version in model.order if start is None or version < start]
        lines = model.sound.before(before, LINES_PER_PAGE) if model.sound else []
        return self._rendering.page(
            "model.html",
            model=model,
            name=model.state.name,
            newest=model.rows([newest])[0] if newest else None,
            manifest=manifest,
            parents=model.parent_recalls(manifest),
            channels=model.in_production() if start is None and before is None else [],
            rows=model.rows(remaining[:VERSIONS_PER_PAGE]),
            older=remaining[VERSIONS_PER_PAGE - 1] if len(remaining) > VERSIONS_PER_PAGE else None,
            log=model.log_rows(lines) if lines else [],
            earlier=lines[-1].seq if lines and lines[-1].seq > 1 else None,
            first=start is None and before is None,
        )

    async def _version(self, request: Request) -> bytes:
        ref = Ref.parse(request.scope["path"].removeprefix("/models/"))
        base = base_url(request, self._settings)

        def make(index: IndexFile | None) -> bytes:
            model = ModelSnapshot(self._registry, ref.name, index)
            row = model.find(ref)
            manifest = model.manifest(row.entry)
            deltas = read_deltas(partial(read_blob, self._registry), row.entry.deltas)
            return self._rendering.page(
                "version.html",
                name=ref.name,
                row=row,
                manifest=manifest,
                parents=model.parent_recalls(manifest),
                proofs=model.proofs(row.entry, manifest),
                snippets=self._snippets(model, row, manifest, base),
                updates=views.update_rows(deltas, manifest) if manifest else [],
                previous=model.before(row.version),
            )

        return await run_sync(self._registry.answer, ("version", ref, base), ref.name, make)

    def _snippets(
        self, model: ModelSnapshot, row: views.VersionRow, manifest: Manifest | None, base: str
    ) -> list[Snippet]:
        """The lines that get the best artifact of a version; none if its files are gone, or all are refused."""
        artifact = None if manifest is None or row.entry.gone else row.best_artifact(manifest)
        if manifest is None or artifact is None:
            return []
        states = {path: state.state for path, state in row.states(manifest).items()}
        digest = row.entry.manifest
        files = layout(manifest, digest, row.entry.size, states, row.entry.held, refused=True)
        tag = None if row.entry.yanked else str(row.version)
        has_token = self._settings.token is not None
        return snippets(
            SnippetSubject(base, model.state.name, tag, digest, manifest, artifact, files, has_token)
        )

    async def _diff(self, request: Request) -> bytes:
        old, new = (request.query_params.get(side, "") for side in ("old", "new"))
        if not (old and new):
            raise InputError("Two versions are compared", "choose them on the page of a model")
        return await run_sync(self._diff_page, Ref.parse(old), Ref.parse(new))

    def _diff_page(self, old: Ref, new: Ref) -> bytes:
        """Read both models from unchanged index files; the token of the outer one is part of the inner one's
        cache key.
        """

        def outer(model: ModelSnapshot) -> bytes:
            def inner(index: IndexFile | None) -> bytes:
                sides = [_side(model, old), _side(ModelSnapshot(self._registry, new.name, index), new)]
                difference = diff(sides[0].manifest, sides[1].manifest)
                return self._rendering.page(
                    "diff.html", comparison=views.ComparisonView(sides[0], sides[1], difference)
                )

            return self._registry.answer(("diff", old, new, model.token), new.name, inner)

        return read_consistently(
            self._registry, old.name, lambda index: outer(ModelSnapshot(self._registry, old.name, index))
        )

    async def _history(self, request: Request) -> bytes:
        name = check_name(request.query_params.get("model", ""))
        metric = request.query_params.get("metric", "")[:MAX_METRIC_LETTERS] or None

        def make(index: IndexFile | None) -> bytes:
            return self._history_page(ModelSnapshot(self._registry, name, index), metric)

        return await run_sync(self._registry.answer, ("history", name, metric), name, make)

    def _history_page(self, model: ModelSnapshot, metric: str | None) -> bytes:
        records = [model.record(version) for version in model.order[:MAX_HISTORY_VERSIONS]]
        history = model_history(model.state.name, records, metric)
        names = dict.fromkeys(
            name for row in history.versions for artifact in row.artifacts for name in artifact.figures
        )
        return self._rendering.page(
            "history.html", history=history, chart=history_chart(history), figures=list(names)[:MAX_FIGURES]
        )


class MisreadError(InputError):
    """A query that is not an expression. `instead`: the query, if it is plain words."""

    def __init__(self, query: str, error: ExpressionError) -> None:
        super().__init__(error.message, error.advice)
        self.drawing = error.drawing
        self.query = query
        self.instead = query if _WORDS.fullmatch(query) else None


def _side(model: ModelSnapshot, ref: Ref) -> views.VersionView:
    row = model.find(ref)
    manifest = model.manifest(row.entry)
    if manifest is None:
        raise NotFoundError(f"{ref} was taken down, its manifest too", "there is nothing left to compare")
    return views.VersionView(Ref(ref.name, str(row.version)), manifest, row)


def _line(request: Request) -> int | None:
    """The line number in the `before` parameter of the URL, if any."""
    text = request.query_params.get("before")
    if text is not None and not re.fullmatch(r"[0-9]{1,15}", text):
        raise InputError(f"before is {text[:40]!r}", "the number of a line of the log")
    return None if text is None else int(text)


def _guarded(response: Response) -> Response:
    """Add headers that let a browser only show the page, with this server's style."""
    response.headers["Content-Security-Policy"] = POLICY
    response.headers["Referrer-Policy"] = "same-origin"
    return response


WIDTH, HEIGHT, MARGIN = 640, 180, 24
"""Of the drawing, in its own units."""


@dataclass(frozen=True)
class ChartPoint:
    """A version in the chart: its place, and the ends of its interval (None: none was published)."""

    x: float
    y: float
    row: HistoryRow
    bounds: tuple[float, float] | None


@dataclass(frozen=True)
class HistoryChart:
    """The comparable figures of a history, the oldest first, with the values at the lower and the upper edge."""

    points: Sequence[ChartPoint]
    low: float
    high: float

    @property
    def line(self) -> str:
        """The points of a polyline."""
        return " ".join(f"{point.x:.1f},{point.y:.1f}" for point in self.points)


def history_chart(history: ModelHistory) -> HistoryChart | None:
    """The chart; None with fewer than two comparable figures."""
    rows = [row for row in reversed(history.versions) if history.is_charted(row)]
    if len(rows) < 2 or history.scale is None:
        return None
    low, high = history.scale
    step = (WIDTH - 2 * MARGIN) / (len(rows) - 1)
    points = []
    for number, row in enumerate(rows):
        bounds = (
            None if row.interval is None else (_y(row.interval[0], low, high), _y(row.interval[1], low, high))
        )
        assert row.value is not None, "charted rows have values"
        points.append(ChartPoint(MARGIN + number * step, _y(row.value, low, high), row, bounds))
    return HistoryChart(points, low, high)


def _y(value: float, low: float, high: float) -> float:
    """The height of a value; all in the middle if they are equal."""
    share = (value - low) / (high - low) if high > low else 0.5
    return HEIGHT - MARGIN - share * (HEIGHT - 2 * MARGIN)
