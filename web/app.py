"""Where everything is put together: stores, worker, handlers, routes. The only place that knows all the parts.

`build` makes an Outrider out of settings. It runs within a process that somebody else has: see `process.py`.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import (
    AsyncExitStack,
    asynccontextmanager,
    suppress,
)
from importlib.metadata import version

import httpx
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from agent import plugins, sdk
from agent.addresses import Allowed
from agent.budgets import Budgets
from agent.fetching import Fetcher
from agent.ingest import Ingest, Sources
from agent.lifecycle import Lifecycle, start_purging
from agent.listeners import Telling
from agent.mcp import Servers, ServersNotReady
from agent.means import Bounds
from agent.memory_runs import HARVEST, REMEMBER, SUMMARY, Remembering, Times, start_remembering
from agent.models import Model, ModelNotReady, UnknownModel, build_model
from agent.offers import BadProfile, Offer, make_ready, of_works, offer_subagents, require_providers
from agent.plugins import BUILTIN_STORE, OURS, Plugins
from agent.profiles import CHAT
from agent.providers import announced, levels_by_provider
from agent.reports import Reports
from agent.taking_up import Shape, Turn
from agent.tightening import Tightening, bring_down
from agent.turns import Turns
from agent.web_pages import Pages
from agent.works import COROUTINE, INGEST, Loose
from background import journal, tokens
from background.database import Clock, Database, wall_clock
from background.limits import SECOND, Limits
from background.redaction import closing
from background.redaction import redact as redact_text
from background.retention import Ages
from background.sealing import Vault, parse_keys
from background.worker import Handler, Worker
from knowledge.backend import Backend, StoreFailed
from knowledge.foreign import Foreign
from knowledge.store import Store
from web import (
    a2a,
    a2a_rest,
    api,
    api_deliveries,
    api_lifecycle,
    api_logins,
    api_memory,
    api_shares,
    api_story,
    api_webhooks,
    console,
    documents,
    events,
    health,
    openapi,
)
from web.access import Access
from web.callers import Callers
from web.credentials import Credentials
from web.house import Deltas, House
from web.posts import Posts
from web.push import Push
from web.push_call import Courier
from web.setting_fields import Settings
from web.setting_values import is_loopback
from web.settings import BadSetting, auto_resume_now

log = logging.getLogger("outrider")

VERSION = version("outrider")
PUSHES = 32  # webhook calls at once; slots of their own, since a receiver may take its 10 s each time
MEMORIES = 2  # summaries and harvests at once: they have time
FOLLOW_UPS = 16  # slots for what follows from turns; short work, so a fixed number serves


class Outrider:
    """One process's Outrider: its stores, what it serves, what it works on."""

    def __init__(self, settings: Settings, model: Model, now: Clock, *, serves: bool, works: bool) -> None:
        self.settings = settings
        self._model, self._now = announced(model), now
        self._plugins = plugins.load()
        require_installed(settings, self._plugins)
        require_backend(settings, self._plugins)
        self._servers = _servers(settings, self._plugins)
        self._offers = _offers(settings, self._plugins, self._servers)
        self._models = [self._model, *(offer.model for offer in self._offers.values() if offer.model)]
        self._serves, self._works = serves, works
        self.house: House
        self.app: ASGIApp
        self.worker: Worker

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Outrider"]:
        """Open, work, and on the way out hand back what cannot be finished."""
        async with AsyncExitStack() as stack:
            db = await self._database().open()
            stack.push_async_callback(db.close)
            levels = {name: offer.level for name, offer in self._offers.items()}
            providers = levels_by_provider(self.settings.providers)
            await bring_down(db, {**levels, None: self.settings.answer_level}, providers)
            store = await self._knowledge()
            stack.push_async_callback(store.close)
            for model in self._models:
                await stack.enter_async_context(model)
            await take_in_own_docs(store, db.now())
            credentials = Credentials()
            callers = Callers(db, credentials, self.settings)
            await callers.look()
            if self._serves:
                await require_token(self.settings, db)
            self.house = House(
                self.settings,
                db,
                store,
                self._plugins.registry,
                credentials,
                callers,
                self._offers,
                self._plugins,
                self._servers,
            )
            loose = self._offer_works()
            self.app = self._stack()
            works = self._plugins.works
            stack.callback(sdk.leave, sdk.enter(db, store, self.house.registry, self._offers[CHAT].level, works, loose))
            telling = [Telling(db, one).forever() for one in self._plugins.listeners.values()] if self._works else []
            for watching in (journal.run_projector(db), callers.watch(), *telling):
                stack.push_async_callback(_end, asyncio.create_task(watching))
            self.worker = Worker(db, self._handlers(), self._pools())
            if self._works:
                stack.push_async_callback(self._servers.stop)
                self._servers.start()
            if self._works:
                await db.write(start_remembering, times_of(self.settings))
            await self.worker.start()
            if self._works:
                await db.write(start_purging)
            stack.push_async_callback(self.stop)
            yield self

    def _offer_works(self) -> Loose:
        """Makes the kinds of work ready, ours beside those of plugins. Returns what runs coroutines."""
        house, loose = self.house, Loose()
        house.sources = Sources(folders=self.settings.ingest_roots)
        ingest = Ingest(house.knowledge, self._fetcher(), house.sources, house.db.now)
        self._plugins.works |= {COROUTINE: loose.kind, INGEST: ingest.kind}
        self._offers |= of_works(self._plugins.works, self.settings.answer_level, guarded=self._plugins.guarded)
        return loose

    async def _knowledge(self) -> Backend:
        """The store that is chosen; a plugin's that is not there or cannot be opened is one that fails."""
        if self.settings.knowledge == BUILTIN_STORE:
            return await Store.open(self.settings.knowledge_path)
        found = await Foreign.open(
            self.settings.knowledge, self._plugins.backends.get(self.settings.knowledge), self.settings.data
        )
        self._plugins.problems.extend(found.problems)
        return found

    def _database(self) -> Database:
        redact = closing(self._plugins.redactor) if self._plugins.redactor else redact_text
        key = self.settings.seal_key
        vault = Vault(parse_keys(key.get_secret_value())) if key else None
        return Database(self.settings.database_path, self._now, limits_of(self.settings), vault, redact)

    async def stop(self) -> None:
        """Take nothing more, finish what can be finished in time, hand back the rest. A second call does nothing."""
        if self.house.stopping:
            return
        self.house.stopping = True
        self.house.db.bell.ring_all()
        await self.worker.stop(self.settings.shutdown_grace_s)
        self.house.closed = True
        self.house.db.bell.ring_all()

    def _stack(self) -> ASGIApp:
        inner = Starlette(routes=routes(self.house), exception_handlers={404: _not_found, 405: _not_found})
        inner.router.redirect_slashes = False  # to an address of this machine's, which a proxy's client may not reach
        return Access(inner, self.settings, self.house.callers)

    def _handlers(self) -> dict[str, Handler]:
        house, settings = self.house, self.settings
        handlers: dict[str, Handler] = {}
        if self._works:
            turns = self._turns()
            reports = Reports(house.db, house.knowledge)
            handlers |= {
                "turn": Handler(turns.run, "turns", turns.begin),
                "job": Handler(turns.run, "jobs", turns.begin),
                "report": Handler(reports.report, "follow-ups"),
                "index": Handler(reports.index, "follow-ups"),
                "join": Handler(reports.join, "follow-ups"),
                "expire": Handler(turns.expire, "follow-ups"),
                "erase": Handler(self._lifecycle().erase, "follow-ups"),
                "purge": Handler(self._lifecycle().purge, "follow-ups"),
                "tighten": Handler(Tightening(house.db, house.knowledge, reports).run, "follow-ups"),
                **self._remembering(),
            }
            if settings.push:
                handlers["push"] = Handler(Push(house.db, self._courier()).run, "pushes")
        if self._serves:
            posts = Posts(
                house.db,
                lambda: self.app,
                house.credentials,
                lambda: auto_resume_now(settings),
                settings.max_unattended_turns,
            )
            handlers |= {
                "dispatch": Handler(posts.dispatch, "follow-ups"),
                "nudge": Handler(posts.nudge, "follow-ups"),
            }
        return handlers

    def _remembering(self) -> dict[str, Handler]:
        settings = self.settings
        levels = levels_by_provider(settings.providers)
        model = self._offers[CHAT].model or self._model
        remembering = Remembering(self.house.db, model, times_of(settings), levels, settings.stall_s)
        return {
            REMEMBER: Handler(remembering.remember, "memory"),
            SUMMARY: Handler(remembering.summary, "memory"),
            HARVEST: Handler(remembering.harvest, "memory"),
        }

    def _courier(self) -> Courier:
        house = self.house
        return Courier(
            allowed=house.webhooks_allowed,
            resolve=lambda host, port: house.resolve(host, port),
            now=house.db.now,
            tls=httpx.create_ssl_context(),
            keys=self.settings.signing_keys,
            user_agent=f"Outrider/{VERSION}",
        )

    def _fetcher(self) -> Fetcher:
        house = self.house
        return Fetcher(
            allowed=Allowed.of(self.settings.fetch_allow),
            resolve=lambda host, port: house.resolve(host, port),
            tls=httpx.create_ssl_context(),
            user_agent=f"Outrider/{VERSION}",
        )

    def _lifecycle(self) -> Lifecycle:
        own = {name: offer.profile.retention_days for name, offer in self._offers.items()}
        days = {name: days for name, days in own.items() if days}
        return Lifecycle(
            self.house.db, self.house.knowledge, Ages(self.settings.retention_days, days, self.settings.incognito_hours)
        )

    def _turns(self) -> Turns:
        settings = self.settings
        return Turns(
            db=self.house.db,
            knowledge=self.house.knowledge,
            model=self._model,
            plugins=self._plugins,
            offers=self._offers,
            shape=Shape(settings.excerpt_chars, settings.notifications_chars),
            bounds=Bounds(settings.job_timeout_s, settings.turn_timeout_s, settings.stall_s, settings.max_jobs),
            say=saying(self.house.deltas),
            levels=levels_by_provider(settings.providers),
            budgets=Budgets(settings.job_tokens, settings.tree_tokens),
            context_tokens=settings.context_tokens,
            servers=self._servers,
            pages=Pages(self._fetcher(), self.house.db.now) if settings.reads_web else None,
            sources=Sources(settings.reads_web, settings.ingest_roots),
            remembers=settings.memory,
        )

    def _pools(self) -> dict[str, int]:
        return {
            "turns": self.settings.max_turns,
            "jobs": self.settings.max_jobs,
            "follow-ups": FOLLOW_UPS,
            "pushes": PUSHES,
            "memory": MEMORIES,
        }


def build(
    settings: Settings, model: Model | None = None, now: Clock = wall_clock, *, serves: bool = True, works: bool = True
) -> Outrider:
    """An Outrider out of settings. Raises `BadSetting` for a model that cannot be had."""
    return Outrider(settings, model or _model(settings), now, serves=serves, works=works)


def _servers(settings: Settings, added: Plugins) -> Servers:
    try:
        return Servers(settings.mcp, {*OURS, *added.tools})
    except ServersNotReady as error:
        raise BadSetting(str(error)) from error


def _offers(settings: Settings, added: Plugins, servers: Servers) -> dict[str, Offer]:
    """All profiles, made ready. Raises `BadSetting` for what means nothing here."""
    try:
        require_providers(settings.providers)
        offers = make_ready(
            settings.defined_profiles,
            settings.answer_level,
            added,
            lambda name: build_model(name, settings.fallback_models),
            servers,
            web=settings.reads_web,
        )
        offer_subagents(settings.subagents, added, servers, offers, web=settings.reads_web)
        return offers
    except BadProfile as error:
        raise BadSetting(str(error)) from error


def _model(settings: Settings) -> Model:
    asked = [
        ("OUTRIDER_MODEL", settings.model),
        *(("OUTRIDER_FALLBACK_MODELS", name) for name in settings.fallback_models),
    ]
    for setting, name in asked:
        try:
            build_model(name)
        except (UnknownModel, ModelNotReady) as error:
            raise BadSetting(f"{setting}: {error}") from error
    return build_model(settings.model, settings.fallback_models)


def times_of(settings: Settings) -> Times | None:
    """When chats are remembered, if they are: their facts well before retention takes what they are made of."""
    if not settings.memory:
        return None
    return Times(settings.summary_after_s, min(settings.harvest_after_s, settings.retention_days * 43_200))


def limits_of(settings: Settings) -> Limits:
    """The bounds that transactions keep, in their units."""
    return Limits(
        lease=int(settings.lease_s * SECOND),
        worker_ttl=int(settings.worker_ttl_s * SECOND),
        resume_max_age=int(settings.resume_max_age_s * SECOND),
        max_attempts=settings.max_attempts,
        max_open_tasks=settings.max_open_tasks_per_user,
        max_queued_jobs=settings.max_queued_jobs,
        max_queued_of_plugins=settings.plugins,
        max_depth=settings.max_depth,
        batch_join_timeout=int(settings.batch_join_timeout_s * SECOND),
    )


def routes(house: House) -> list[BaseRoute]:
    """Everything that is served. Who may ask for what is tried on each, in `tests/access/test_routes.py`."""
    return [
        *a2a.routes(house),
        *a2a_rest.routes(house),
        *api.routes(house),
        *api_deliveries.routes(house),
        *api_lifecycle.routes(house),
        *api_logins.routes(house),
        *api_memory.routes(house),
        *api_shares.routes(house),
        *api_story.routes(house),
        *api_webhooks.routes(house),
        *documents.routes(house),
        *events.routes(house),
        *health.routes(house),
        *openapi.routes(house, VERSION),
        *console.routes(),
    ]


def require_installed(settings: Settings, added: Plugins) -> None:
    """Raises `BadSetting` for a table of a plugin that is not there."""
    for name in settings.plugins:
        if name not in added.names:
            there = ", ".join(added.names) or "none"
            raise BadSetting(f"plugins.{name}: no plugin of this name is installed; there are: {there}")


def require_backend(settings: Settings, added: Plugins) -> None:
    """Raises `BadSetting` for a knowledge backend that nobody adds, unless a plugin is broken that may have meant to."""
    there = [BUILTIN_STORE, *added.backends]
    if settings.knowledge not in there and not added.problems:
        raise BadSetting(
            f"knowledge (OUTRIDER_KNOWLEDGE): no plugin adds {settings.knowledge!r}; there are: {', '.join(there)}"
        )


async def take_in_own_docs(store: Backend, now: int) -> None:
    """Ours without a docs page is an installation that is broken; a plugin's that fails is named, and the rest works."""
    try:
        await documents.take_in_own_docs(store, now)
    except StoreFailed as failed:
        if not isinstance(store, Foreign):
            raise
        log.warning("the pages of the documentation are not taken in: %s", failed)


async def require_token(settings: Settings, db: Database) -> None:
    """Raises `BadSetting` where others could reach us and nobody has a token to be known by."""
    if not is_loopback(settings.host) and not await db.read(tokens.hold):
        raise BadSetting(
            f"host (OUTRIDER_HOST): {settings.host} can be reached from elsewhere, and there is no access token; "
            "make one first with: outrider token create --user NAME"
        )


def saying(deltas: Deltas) -> Callable[[Turn, str], None]:
    def say(turn: Turn, piece: str) -> None:
        if turn.job is None:
            about = {"session": turn.session.id, "task_id": turn.task.id}
            cause = {"origin": turn.task.origin, "trigger": turn.task.cause}
            quiet = {"incognito": True} if turn.session.incognito else {}
            deltas.publish(turn.task.owner, {**about, **cause, **quiet, "attempt": turn.attempt, "text": piece})

    return say


async def _not_found(request: object, error: Exception) -> JSONResponse:
    status = getattr(error, "status_code", 404)
    code, message = (
        ("METHOD_NOT_ALLOWED", "This address takes another method.")
        if status == 405
        else ("NOT_FOUND", "There is nothing here.")
    )
    allowed = getattr(error, "headers", None)  # a 405 says which methods there are
    return JSONResponse({"error": {"code": code, "message": message, "details": {}}}, status, allowed)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
