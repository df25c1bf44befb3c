"""One running server on which tokens are in force, and people with tokens, for all promises about access."""

from collections.abc import Iterator

import pytest

from tests.a2a import over_grpc
from tests.access.people import Person, revoke, token_for
from tests.support.server import Server


@pytest.fixture(scope="package")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that began with tokens in force."""
    data = tmp_path_factory.mktemp("guarded") / "data"
    token_for(data, "root")
    with Server(data, env={"OUTRIDER_PROFILES": "chat,echo"} | over_grpc.served()) as server:
        yield server


@pytest.fixture(scope="package")
def alice(guarded: Server) -> Person:
    return Person(guarded, token_for(guarded.data, "alice"))


@pytest.fixture(scope="package")
def bob(guarded: Server) -> Person:
    return Person(guarded, token_for(guarded.data, "bob"))


@pytest.fixture(scope="package")
def nobody(guarded: Server) -> Person:
    """Somebody without a token."""
    return Person(guarded)


@pytest.fixture(scope="package")
def revoked(guarded: Server) -> Person:
    """Somebody whose token was revoked."""
    person = Person(guarded, token_for(guarded.data, "alice"))
    revoke(guarded.data, person.token)
    return person
