"""A model's name becomes a model of the agent library, and what a model call raised becomes words.

Owns which names are allowed, the order of fallbacks, and which failures are worth another try. It opens no connection
and reads no environment: the providers' own libraries read theirs (OPENAI_API_KEY, OPENAI_BASE_URL and so on).
"""

import asyncio
import logging
import re
import secrets
import shlex
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import httpx
import httpx2
from pydantic_ai.exceptions import (
    AgentRunError,
    ModelAPIError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRequestRejectedError,
    ModelTimeoutError,
    ModelUnavailableError,
    RunCancelled,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
    UserError,
)
from pydantic_ai.models import Model, infer_model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.providers import infer_provider_class

from agent.offline import OfflineModel
from agent.providers import Announced, provider_of
from background.credentials import mask_credentials

log = logging.getLogger(__name__)

ALLOWED = (
    "offline, openai:NAME, openai-chat:NAME (any OpenAI-compatible endpoint, its address in OPENAI_BASE_URL), "
    "anthropic:NAME, google:NAME, ollama:NAME, or PROVIDER:NAME of another provider that pydantic-ai knows"
)
_OUR_EXTRAS = ("openai", "anthropic", "google", "ollama")
_ROOT = Path(__file__).parents[1]  # of a checkout, or the folder that a package was installed into
_CLIP = 300
OFFLINE = "offline"


class UnknownModel(ValueError):
    """No model has this name; the text is one line that says what is allowed."""


class ModelNotReady(ValueError):
    """The model is known but cannot be used yet; the text is one line that says what to install or to set."""


def build_model(name: str, fallbacks: Sequence[str] = ()) -> Model:
    """The model of this name, with others to try in order when it fails. Nothing is sent.

    The next one is tried on whatever a provider or the way to it did wrong, in streams as long as nothing of the answer
    has come; a stream that breaks later is raised. Whoever asked with `providers.before_requests` is told of each
    request first. Raises `UnknownModel` and `ModelNotReady`.
    """
    models = [Announced(_single(each), provider_of(each)) for each in (name, *fallbacks)]
    return models[0] if len(models) == 1 else FallbackModel(*models, fallback_on=_try_the_next)


def is_provider(name: str) -> bool:
    """Whether models of this provider can be named, installed or not."""
    try:
        infer_provider_class(name)
    except ImportError:
        return True
    except ValueError:
        return False
    return True


def _single(name: str) -> Model:
    if name == OFFLINE:
        return OfflineModel()
    provider, _, model = name.partition(":")
    try:
        if not model:
            raise ValueError("no provider")
        infer_provider_class(provider)
    except ImportError as error:
        raise ModelNotReady(_what_to_install(name, error)) from error
    except ValueError as error:
        raise UnknownModel(f"unknown model {name!r}; allowed: {ALLOWED}") from error
    try:
        return infer_model(name)
    except ImportError as error:
        raise ModelNotReady(_what_to_install(name, error)) from error
    except UserError as error:
        raise ModelNotReady(_what_to_set(name, error)) from error


def _what_to_install(name: str, error: ImportError) -> str:
    """What is missing, and the command that installs it into this very installation."""
    named = re.search(r"pydantic-ai-slim\[([\w-]+)\]", str(error))
    if named is None:
        return f"model {name!r} needs a library that cannot be imported: {_line(error)}"
    provider = name.partition(":")[0]
    extra = provider if provider in _OUR_EXTRAS else named[1]
    command = install_command(extra) if extra in _OUR_EXTRAS else _pip_install(f"'pydantic-ai-slim[{extra}]'")
    return f"model {name!r} needs a library that is not installed: {command}"


def install_command(extra: str) -> str:
    """The command that installs an extra of ours into this very installation."""
    if (_ROOT / "pyproject.toml").is_file():
        return _pip_install("-e " + shlex.quote(f"{_ROOT}[{extra}]"))
    return _pip_install(f"'outrider[{extra}]'")


def _pip_install(package: str) -> str:
    return f"{shlex.quote(sys.executable)} -m pip install {package}"


def _what_to_set(name: str, error: UserError) -> str:
    variables = dict.fromkeys(re.findall(r"`([A-Z][A-Z0-9_]+)`", str(error)))
    if not variables:
        return f"model {name!r} cannot be used: {_line(error)}"
    return f"model {name!r} cannot be used: set {' or '.join(variables)} in the environment"


_LOST = (
    httpx.TransportError,
    httpx2.TransportError,
    ConnectionError,
    TimeoutError,
    asyncio.IncompleteReadError,
    socket.gaierror,
)
_FINAL = (
    ModelQuotaExceededError,  # comes as a 429, but waiting brings no credit
    ModelRequestRejectedError,
    RunCancelled,  # its subclass is a TimeoutError, and is our own deadline
)


def _try_the_next(error: Exception) -> bool:
    # What is wrong with one provider's key, name or limits need not be wrong with the next one's.
    return isinstance(error, (ModelAPIError, UnexpectedModelBehavior, *_LOST))


@dataclass(frozen=True)
class Failure:
    """Why a model call failed: whether another try may help, when, and a line for people without secrets in it."""

    transient: bool
    retry_after_s: float | None
    message: str


def classify(error: BaseException, *, quote: bool = True) -> Failure:
    """What a model call raised, as a `Failure`. Of several models that failed, one that may recover is enough.

    Without `quote` the log has none of the provider's words, which may quote what was said.
    """
    if isinstance(error, BaseExceptionGroup):
        return _all_failed([classify(each, quote=quote) for each in error.exceptions])
    log.info("a model call failed: %s", _cause(error) if quote else type(error).__name__)
    transient = _is_transient(error)
    wait = error.retry_after if transient and isinstance(error, ModelAPIError) else None
    return Failure(transient, wait, _message(error, quote))


def is_too_long(error: BaseException) -> bool:
    """Whether a model call failed because its model does not take so much, or one of several models does not."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(is_too_long, error.exceptions))
    return isinstance(error, ModelContextWindowExceededError)


def _all_failed(members: list[Failure]) -> Failure:
    hopeful = [member for member in members if member.transient]
    waits = [member.retry_after_s for member in hopeful if member.retry_after_s is not None]
    # The soonest of the waits that were asked for, but only if no model can be tried sooner.
    soonest = min(waits) if waits and len(waits) == len(hopeful) else None
    return Failure(bool(hopeful), soonest, _in_one([member.message for member in members]))


def _in_one(sentences: list[str]) -> str:
    return "; then ".join([*sentences[:1], *(text[:1].lower() + text[1:] for text in sentences[1:])])


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, _FINAL):
        return False
    if isinstance(error, ModelHTTPError) and not isinstance(error, ModelUnavailableError):
        return error.status_code in (408, 409, 425, 429) or error.status_code >= 500
    return isinstance(error, (ModelAPIError, *_LOST))


def _message(error: BaseException, quote: bool) -> str:
    match error:
        case ModelHTTPError():
            return f"The model {error.model_name} answered HTTP {_status(error.status_code)}: {_provider_text(error)}"
        case ModelTimeoutError():
            return f"The model {error.model_name} did not answer in time"
        case ModelConnectionError(phase="read"):
            return f"The connection to the model {error.model_name} broke off"
        case ModelConnectionError():
            return f"The model {error.model_name} could not be reached"
        case UsageLimitExceeded():
            return f"A limit of this run is used up: {_line(str(error).split('. Consider raising')[0])}"
        case UnexpectedModelBehavior():
            return f"The model's answer cannot be used: {_line(error)}"
        case ModelAPIError():
            return f"The model {error.model_name} failed: {_line(error)}"
    if isinstance(error, (AgentRunError, *_LOST)):
        return f"{type(error).__name__}: {_line(error)}".removesuffix(": ")
    # Neither a provider nor the way to it: a bug somewhere, whose text was written for nobody who chats.
    error_id = secrets.token_hex(4)
    log.error("a model call failed, error %s: %s", error_id, type(error).__name__, exc_info=error if quote else None)
    return f"Internal error {error_id}"


def _status(code: int) -> str:
    return f"{code} {HTTPStatus(code).phrase}" if code in HTTPStatus.__members__.values() else str(code)


def _provider_text(error: ModelHTTPError) -> str:
    body = error.body
    while isinstance(body, dict):
        body = body.get("message") or body.get("error") or body.get("detail") or str(body)
    return _line(body) if body else "no further word"


def _cause(error: BaseException) -> str:
    # "Connection error." is what the provider's library says; the reason is below it, where that says anything.
    texts = [str(error)]
    while error.__cause__ is not None:
        error = error.__cause__
        texts.append(str(error))
    return _line(next((text for text in reversed(texts) if text.strip()), "no reason given"))


def _line(thing: object) -> str:
    """Its text on one line, masked first and then clipped, so that no piece of a secret is left at the cut."""
    text = mask_credentials(" ".join(str(thing).split()))
    return text if len(text) <= _CLIP else text[: _CLIP - 1] + "…"
