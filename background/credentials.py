"""Keys, tokens and passwords in a text, replaced by `***`; all else stays as it is, to the letter.

It knows a credential by its own form (`sk-…`, `ghp_…`, a JWT, a private key) or by what stands before it
(`Authorization:`, `api_key=`, `?token=`, "the key is …"). Time is linear in the text: a run of characters is taken
whole or not at all, so nothing is read again from a later beginning.
"""

import re
from itertools import pairwise

MASK = "***"
SHORTEST = 5  # characters that hold a credential with what tells it: `PWD=x`

_QUOTE = r"\\?[\"']"  # JSON within JSON escapes its quotes
_BARE = r"[^\s\"'`&,;}\\]"
_NAME = (
    r"(?:api[-_ ]?key|access[-_ ]?key(?:[-_ ]?id)?|(?:client[-_ ]?)?secret(?:[-_ ]?key)?|private[-_ ]?key|credentials?"
    r"|passw(?:or)?d|passphrase|pwd|(?:access|auth|refresh|api|bot|session|bearer|id)[-_ ]?token|[-_]token)"
)
_WHICH = r"(?:[-_](?:prod|production|test|dev|staging|live|old|new|value|confirmation|\d{1,2}))?"
_IS = r"(?::=|=>?|:)"

_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r"(?:(?:[^-]|-(?!----))*+-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r"|(?:(?:\s|\\[rn])*+[A-Za-z0-9+/=]{16,}+)++)"
)
_FORMS = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"[spr]k[-_](?:live|test|proj|ant|or|svcacct|admin)[-_][\w*-]++(?:\.[\w*-]++)*+"
    r"|(?<![\w-])[spr]k-(?=[\w*-]{0,40}[\d*])[\w*-]{8,}+"
    r"|AIza[\w-]{8,}+"
    r"|(?:gh[pousr]_|gsk_|hf_|npm_|xai-|dop_v1_|whsec_|shp(?:at|ss|ca)_)[A-Za-z0-9]{16,}+"
    r"|(?:github_pat_|glpat-|nvapi-|pypi-AgE|ya29\.)[\w-]{16,}+"
    r"|xox[abeprs]-[\w-]{8,}+"
    r"|SG\.[\w-]{16,}+\.[\w-]{16,}+"
    r"|(?:tok|shr)-[0-9a-f]{12}\.[\w-]{16,}+"
    r"|(?:AKIA|ASIA)[A-Z0-9]{12,}+"
    r"|\d{8,10}:AA[\w-]{33}"
    r")"
)
# One of these is in whatever has such a form: to look for them takes a tenth of the time, and seldom one is there.
_SIGNS = (
    *("k-", "k_", "AIza", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "gsk_", "hf_", "npm_", "xai-", "dop_v1_", "whsec_"),
    *(
        "shpat_",
        "shpss_",
        "shpca_",
        "github_pat_",
        "glpat-",
        "nvapi-",
        "pypi-AgE",
        "ya29.",
        "xox",
        "SG.",
        "tok-",
        "shr-",
    ),
    *("AKIA", "ASIA", ":AA"),
)
_TOKEN_OF_JSON = re.compile(r"eyJ[\w-]{8,}+(?:\.[\w-]*+)*+")  # what begins with a JSON object in base64
_HEADER = re.compile(
    rf"(authorization(?:{_QUOTE})?\s*+[:=]\s*+(?:{_QUOTE})?(?:bearer|basic|digest|token|negotiate)\s++)({_BARE}++)",
    re.IGNORECASE,
)
_BEARER = re.compile(r"(\bbearer\s++)([^\s\"'&,;}\\)\]`]++)", re.IGNORECASE)
_WORDS = ("key", "secret", "credential", "passw", "passphrase", "pwd", "token", "authorization")
_QUOTED = re.compile(
    rf"((?P<name>{_NAME}){_WHICH}(?:{_QUOTE})?\s{{0,8}}{_IS}\s{{0,8}}(?P<quote>{_QUOTE}))"
    r"((?:(?!(?P=quote))(?:\\.|[^\n\\])){1,2000}+)(?=(?P=quote))",
    re.IGNORECASE,
)
_NAMED = re.compile(
    rf"((?:\b|_)(?P<name>(?:{_NAME}|authorization|(?<![\w-])token){_WHICH}(?: provided)?)"
    rf"(?:{_QUOTE})?(?P<is>\s{{0,8}}{_IS}\s{{0,8}})(?:{_QUOTE})?)(?P<value>{_BARE}++)",
    re.IGNORECASE,
)
_QUERY = re.compile(
    r"([?&](?:key|token|auth|code|sig|signature|secret|password|access_token|api_?key)=)([^&\s\"'`#<>)\]]++)",
    re.IGNORECASE,
)
_USER_INFO = re.compile(r"(?<=://)[^/\s@?#]{1,256}+@")
_TALK = re.compile(
    r"(?P<word>\b(?:key|token|secret|password|passphrase|credential)s?\b)|(?P<token>[A-Za-z0-9+/=_-]{16,}+)",
    re.IGNORECASE,
)
_NEAR = 40  # characters between the word "key" and what is then taken for one

_PLACEHOLDER = re.compile(r"[$<{%\[(*.…]|your[-_ ]|x+\Z|change[-_]?me|\d{4}-\d\d-\d\d", re.IGNORECASE)
_CODE = re.compile(r"[(\[{<$]|^(?:self|os|settings|config|args|env)\.")
_NO_VALUE = re.compile(
    r"(?:none|null|true|false|str|string|bytes|int|optional|required|yes|no|any|hidden|empty|unset|missing|invalid"
    r"|wrong|changed|expired|enabled|disabled|unknown)\Z",
    re.IGNORECASE,
)
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z", re.IGNORECASE)
_CREDENTIAL_NAME = re.compile(rf"(?:.*[-_. ])?(?:{_NAME}|token|authorization)\Z", re.IGNORECASE | re.DOTALL)


def mask_credentials(text: str) -> str:
    """The text with keys, tokens, passwords and credentials in addresses replaced by `***`. Masking twice is once."""
    if len(text) < SHORTEST:
        return text
    folded = text.casefold()  # the text's words, in whatever case; what is masked takes words away and makes none
    named = any(map(folded.__contains__, _WORDS))
    text = _PRIVATE_KEY.sub(MASK, text)
    if named:
        text = _HEADER.sub(_unless_placeholder, text)
    if "bearer" in folded:
        text = _BEARER.sub(lambda found: found[1] + (MASK if _looks_made(found[2], 6) else found[2]), text)
    if named:  # what is looked for by its name is slow to look for, and seldom named
        text = _QUOTED.sub(_quoted, text)
        text = _NAMED.sub(_named, text)
    if any(map(text.__contains__, _SIGNS)):
        text = _FORMS.sub(MASK, text)
    text = _TOKEN_OF_JSON.sub(lambda found: MASK if "." in found[0].rstrip(".") else found[0], text)
    text = _QUERY.sub(_unless_placeholder, text)
    text = _USER_INFO.sub(lambda found: f"{MASK}@" if _entrusted(found[0][:-1]) else found[0], text)
    return _masked_talk(text) if named else text


def names_credential(name: str) -> bool:
    """Whether a field of this name holds a credential, whatever its value looks like."""
    return len(name) <= 100 and _CREDENTIAL_NAME.match(name) is not None


def _unless_placeholder(found: re.Match[str]) -> str:
    value = found[found.re.groups]
    return found[0] if _is_placeholder(value) else found[0][: -len(value)] + MASK


def _is_placeholder(value: str) -> bool:
    return _PLACEHOLDER.match(value) is not None or _NO_VALUE.match(value) is not None


def _quoted(found: re.Match[str]) -> str:
    # Many a program has a token that is a word of a language, as in `"end_token": "stop"`.
    words = found["name"].lower() in ("_token", "-token") and not _looks_made(found[found.re.groups], 5)
    return found[0] if words else _unless_placeholder(found)


def _named(found: re.Match[str]) -> str:
    """`password=hunter2` is one, `password: str` and "the secret: patience" are not."""
    value = found["value"]
    given = value.rstrip(".:)]") or value
    if _is_placeholder(given) or _CODE.search(value) or not _is_given(found, given):
        return found[0]
    return found[1] + MASK + value[len(given) :]


def _is_given(found: re.Match[str], value: str) -> bool:
    if _looks_made(value, 3 if "key" in found["name"].lower() else 5):
        return True
    if value.lower() == found["name"].lower():
        return False
    after = found.string[found.end() : found.end() + 1]
    if found["is"] == "=":  # an assignment as in a shell; a call's argument has a comma or a bracket after it
        return found["name"].isupper() or (after not in (",", ")") and not _is_reference(value)) or after in ("", "\n")
    before = found.string[max(0, found.start() - 40) : found.start()].rpartition("\n")[2]
    return after in ("", "\n", "\r") and not before.strip(" -\t#") and ":" in found["is"]


def _is_reference(value: str) -> bool:
    return all(part.isidentifier() for part in value.split("."))


def _looks_made(value: str, least: int) -> bool:
    """Whether a machine or a careful person made it: digits in it, or long and of mixed case."""
    if len(value) < least:
        return False
    return any(c.isdigit() for c in value) or (len(value) >= 16 and _changes(value) * 3 >= len(value))


def _entrusted(user: str) -> bool:
    return user != MASK and (":" in user or _looks_made(user, 8))


def _changes(text: str) -> int:
    """How often the class of character changes, among lower case, upper case and digits."""
    kinds = ["d" if c.isdigit() else "u" if c.isupper() else "l" for c in text if c.isalnum()]
    return sum(a != b for a, b in pairwise(kinds))


def _masked_talk(text: str) -> str:
    """What looks drawn by lot, shortly after a word such as "key"."""
    near = -1

    def look(found: re.Match[str]) -> str:
        nonlocal near
        if found["word"]:
            near = found.end() + _NEAR
        elif found.start() <= near and _looks_drawn(found[0]):
            return MASK
        return found[0]

    return _TALK.sub(look, text)


def _looks_drawn(token: str) -> bool:
    digits = sum(c.isdigit() for c in token)
    letters = sum(c.isalpha() for c in token)
    return (
        digits >= 2
        and letters >= 2
        and _changes(token) * 5 >= len(token)
        and not _UUID.match(token)
        and "/" not in token.strip("/")[:8]  # a path
    )
