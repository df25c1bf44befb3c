"""F074, F175, F179, ruling 28: access tokens, from the command that makes one to the request after it was revoked."""

import json
import time
from pathlib import Path

import pytest

from tests.access.people import Person, outrider, revoke, token_for
from tests.support.server import Server
from web.cli_views import line


def told(person: Person, path: str = "/api/sessions") -> tuple[int, str, str | None]:
    """Status, code and challenge of a refusal."""
    answer = person.get(path)
    return answer.status_code, answer.json()["error"]["code"], answer.headers.get("www-authenticate")


REFUSED = (401, "UNAUTHENTICATED", "Bearer")

# --- the command ------------------------------------------------------------------------------------------------------


def test_a_token_is_printed_once_and_kept_nowhere(tmp_path: Path) -> None:
    made = outrider(tmp_path, "token", "create", "--user", "alice")
    token = made.stdout.strip()
    assert made.exit_code == 0 and made.stdout == f"{token}\n" and len(token.partition(".")[2]) == 43
    assert "alice" in made.stderr and token not in made.stderr
    for command in (("token", "list"), ("token", "list", "--json"), ("token", "revoke", token.partition(".")[0])):
        shown = outrider(tmp_path, *command)
        assert shown.exit_code == 0 and "alice" in shown.stdout
        assert token not in shown.output and token.partition(".")[2] not in shown.output
    secret = token.partition(".")[2].encode()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files and not any(secret in path.read_bytes() for path in files)


@pytest.mark.parametrize("command", [("token", "list"), ("token", "revoke", "tok-0123456789ab"), ("backup", "x")])
def test_who_only_reads_or_revokes_makes_no_folder_of_a_mistyped_name(tmp_path: Path, command: tuple[str, ...]) -> None:
    refused = outrider(tmp_path / "mistyped", *command)
    assert refused.exit_code == 2 and "there is no folder" in refused.stderr and list(tmp_path.iterdir()) == []


def test_tokens_are_listed_with_what_became_of_them(tmp_path: Path) -> None:
    kept, gone = token_for(tmp_path, "alice"), token_for(tmp_path, "bob")
    revoke(tmp_path, gone)
    revoke(tmp_path, gone)
    found = json.loads(outrider(tmp_path, "token", "list", "--json").stdout)["tokens"]
    assert {(row["id"], row["user"], row["used_at"], row["revoked_at"] is None) for row in found} == {
        (kept.partition(".")[0], "alice", None, True),
        (gone.partition(".")[0], "bob", None, False),
    }


@pytest.mark.parametrize("name", ["", " ", "al ice", "alice/bob", "-alice", "a" * 65, "älice", "a\nb", "../a"])
def test_a_user_s_name_is_short_and_plain(tmp_path: Path, name: str) -> None:
    refused = outrider(tmp_path, "token", "create", f"--user={name}")
    assert (refused.exit_code, refused.stdout) == (2, "") and "1 to 64 characters" in refused.stderr


def test_a_token_that_is_not_there_cannot_be_revoked(tmp_path: Path) -> None:
    refused = outrider(tmp_path, "token", "revoke", "tok-0123456789ab")
    assert (refused.exit_code, line(refused.stderr)) == (1, "outrider: There is no such token.")


# --- in force -------------------------------------------------------------------------------------------------------


def test_f074_each_is_known_by_its_token_and_nobody_else_is_let_in(alice: Person, bob: Person, nobody: Person) -> None:
    alice.post("/api/sessions", id="of-alice")
    bob.post("/api/sessions", id="of-bob")
    assert "of-alice" in alice.sessions() and "of-alice" not in bob.sessions()
    assert "of-bob" in bob.sessions() and "of-bob" not in alice.sessions()
    assert told(nobody) == REFUSED


def test_a_refusal_says_how_to_be_let_in_in_the_form_of_each_door(nobody: Person) -> None:
    said = nobody.get("/api/sessions").json()["error"]["message"]
    assert "Authorization: Bearer" in said and "outrider token create --user NAME" in said
    rest = nobody.get("/a2a/rest/tasks")
    assert (rest.status_code, rest.headers["www-authenticate"]) == (401, "Bearer")
    assert rest.json()["error"]["details"][0]["reason"] == "UNAUTHENTICATED"
    rpc = nobody.post("/a2a")
    assert (rpc.status_code, rpc.headers["www-authenticate"]) == (401, "Bearer")
    assert rpc.json()["error"]["code"] == -32041


def test_f175_the_next_request_after_a_token_was_revoked_is_refused(guarded: Server) -> None:
    person = Person(guarded, token_for(guarded.data, "carol"))
    assert person.get("/api/sessions").status_code == 200
    revoke(guarded.data, person.token)
    assert told(person) == REFUSED
    assert told(person, "/api/status") == REFUSED


def test_f175_a_token_of_which_anything_is_changed_does_not_hold(guarded: Server, alice: Person) -> None:
    token_id, _, secret = alice.token.partition(".")
    other = token_for(guarded.data, "bob").partition(".")[2]
    flipped = secret[:-2] + ("A" if secret[-2] != "A" else "B") + secret[-1]
    forged = [f"{token_id}.{flipped}", f"{token_id}.{other}", f"{token_id}.", token_id, secret, "x" * 5000]
    forged += [alice.token.upper(), f"{alice.token}x", f"tok-0123456789ab.{secret}", f"shr-{alice.token[4:]}"]
    for token in forged:
        assert told(Person(guarded, Authorization=f"Bearer {token}")) == REFUSED, token
    assert told(Person(guarded, Authorization=f"Basic {alice.token}")) == REFUSED
    assert Person(guarded, Authorization=f"bearer  {alice.token}").get("/api/sessions").status_code == 200


def test_two_tokens_in_one_request_are_none(alice: Person, bob: Person) -> None:
    both = [("Authorization", f"Bearer {person.token}") for person in (alice, bob)]
    assert alice.server.http.get("/api/sessions", headers=both).status_code == 401


def test_f179_no_token_is_in_a_log_or_an_answer(guarded: Server, alice: Person) -> None:
    altered = f"{alice.token[:-3]}abc"
    assert told(Person(guarded, altered)) == REFUSED
    guarded.wait(lambda: "the access token does not hold" in guarded.log())
    listed = outrider(guarded.data, "token", "list", "--json").stdout
    for secret in (alice.token.partition(".")[2], altered.partition(".")[2]):
        assert secret not in guarded.log() + listed + alice.get("/api/status").text


def test_the_last_use_is_known_by_the_hour(guarded: Server, alice: Person) -> None:
    alice.get("/api/sessions")
    found = json.loads(outrider(guarded.data, "token", "list", "--json").stdout)["tokens"]
    (mine,) = (row for row in found if alice.token.startswith(row["id"]))
    assert mine["used_at"] is not None


def test_a69_what_a_user_sends_out_comes_back_to_her(alice: Person, bob: Person) -> None:
    """Our own posts carry her name, though no token of hers."""
    alice.post("/api/sessions", id="errands")
    job = alice.post("/api/background", session="errands", description="look", prompt="look into owls").json()
    alice.server.wait(lambda: alice.get(f"/api/background/{job['id']}").json()["notified"])
    log = alice.get("/api/sessions/errands/messages").json()["messages"]
    assert any(job["id"] in message["job_ids"] for message in log)
    assert bob.get(f"/api/background/{job['id']}").status_code == 404


# --- where a request comes from ---------------------------------------------------------------------------------------


def test_who_shows_a_token_may_call_by_any_name_and_no_page_from_elsewhere_may(alice: Person, nobody: Person) -> None:
    for host in ("outrider.intern:8420", "10.0.0.5", "evil.example"):
        assert alice.send("GET", "/api/sessions", {"Host": host}).status_code == 200
        assert nobody.send("GET", "/api/sessions", {"Host": host}).status_code == 403
        assert alice.send("GET", "/healthz", {"Host": host}).status_code == 403
    assert alice.send("GET", "/api/sessions", {"X-Forwarded-For": "10.0.0.5"}).status_code == 200
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "http://evil.example", "Host": "evil.example:1"}):
        assert alice.send("GET", "/api/sessions", headers).status_code == 403


def test_f175_with_a_token_any_address_is_listened_on(tmp_path: Path) -> None:
    data = tmp_path / "data"
    token = token_for(data, "alice")
    with Server(data, env={"OUTRIDER_HOST": "0.0.0.0"}) as server:
        assert told(Person(server)) == REFUSED
        alice = Person(server, token)
        assert alice.get("/api/sessions").status_code == 200
        for address in ("10.0.0.5:8420", "[fd00::1]"):  # a health check asks by number; a name may be anybody's
            assert alice.send("GET", "/healthz", {"Host": address}).status_code == 200
        assert alice.send("GET", "/healthz", {"Host": "evil.example"}).status_code == 403


def test_on_every_address_the_card_names_the_one_that_it_was_asked_at(tmp_path: Path) -> None:
    """And one that nobody can call by, never: not in the card, and not in the line that it starts with."""
    data = tmp_path / "data"
    token = token_for(data, "alice")
    with Server(data, env={"OUTRIDER_HOST": "0.0.0.0"}) as server:
        alice, tags = Person(server, token), set()
        for host in ("10.0.0.5:9000", "[fd00::1]:8420", "localhost"):
            answer = alice.send("GET", "/.well-known/agent-card.json", {"Host": host})
            faces = answer.json()["supportedInterfaces"]
            assert (
                {face["url"].partition("/a2a")[0] for face in faces}
                == {f"http://{host}"}
                == {answer.json()["url"].partition("/a2a")[0]}
            )
            assert answer.headers["vary"] == "Host"
            tags.add(answer.headers["etag"])
            again = {"Host": host, "If-None-Match": answer.headers["etag"]}
            assert alice.send("GET", "/.well-known/agent-card.json", again).status_code == 304
        assert len(tags) == 3
        assert "0.0.0.0" not in alice.send("GET", "/.well-known/agent-card.json", {"Host": "0.0.0.0:1"}).text
        assert any("OUTRIDER_PUBLIC_URL" in problem for problem in alice.get("/api/status").json()["problems"])
        assert "http://0.0.0.0" not in server.log()


def test_a_running_server_hears_of_the_first_token_and_never_opens_again(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server:
        anybody = Person(server)
        anybody.post("/api/sessions", id="from-before")
        refused = Person(server, f"tok-0123456789ab.{'x' * 43}")
        assert told(refused) == REFUSED, "a token that does not hold is not a request without one"
        token, began = token_for(server.data, "local"), time.monotonic()
        server.wait(lambda: anybody.get("/api/sessions").status_code == 401, 5)
        assert time.monotonic() - began < 1.5
        assert Person(server, token).sessions() == ["from-before"], "what was made without a token is local's"
        revoke(server.data, token)
        server.restart()
        assert told(anybody) == REFUSED
