"""What no answer may tell, whatever was asked: that something of ours went wrong, and how it is called."""

import re

import httpx

# Words of exceptions and of the code; none of them belongs into a sentence for a client.
WORDS = re.compile(
    rb"Traceback|File \\?\"|\.py\b|[a-z]Error\b|Exception|site-packages|pydantic|starlette|sqlite|apsw|object at 0x|NoneType"
)


def assert_tells_nothing(answer: httpx.Response) -> None:
    """No failure of ours, no word of the code, and an error in the form of its door."""
    told = f"{answer.status_code} {answer.content[:2000]!r}"
    assert answer.status_code < 500 or answer.status_code in (501, 503), told
    if answer.status_code < 400:
        return
    assert not WORDS.search(answer.content), told
    assert len(answer.content) < 4000, told
    assert answer.json()["error"]["message"], told
