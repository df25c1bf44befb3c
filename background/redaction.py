"""The redactor that comes with the house: personal data and credentials in a text, replaced by `***`.

It masks e-mail addresses, telephone numbers, payment card numbers, and what `credentials.py` knows. It never cuts, and
leaves dates, versions, ids, code and ordinary numbers alone. Time is linear in the text.
"""

import logging
import re
from collections.abc import Callable, Iterator

from background.credentials import MASK, mask_credentials

log = logging.getLogger(__name__)

_LOCAL = r"A-Za-z0-9À-ɏΑ-ӿ._%+-"
_DOMAIN = r"(?:[A-Za-z0-9À-ɏΑ-ӿ-]{1,63}\.)+[A-Za-zÀ-ɏΑ-ӿ]{2,24}"
_ADDRESS = rf"[{_LOCAL}]++(?:'[{_LOCAL}]++)*+@{_DOMAIN}"
_EMAIL = re.compile(rf"(?<![{_LOCAL}])(?<![{_LOCAL}]')(?:{_ADDRESS})++")
_EMAIL_IN_URL = re.compile(rf"(?<![A-Za-z0-9._+-])[A-Za-z0-9._+-]++%40{_DOMAIN}", re.IGNORECASE)

_SOME_DIGITS = re.compile(r"\d(?:\D{0,4}\d){6}")  # fewer are no number of anybody's
_DIGITS = re.compile(
    r"(?<![\w.])(?=[\d \u00a0.-]{13})\d++(?:[ \u00a0.-]\d++)*+(?!\w)"
)  # a card's number has 13 at least
_GROUPS = re.compile(r"\d+")
_CARD_SHAPES = {(4, 4, 4, 4), (4, 6, 5), (4, 6, 4), (4, 4, 4, 4, 1), (4, 4, 4, 4, 2), (4, 4, 4, 4, 3), (4, 4, 5)}
_CARD_START = re.compile(r"4|5[0-8]|2[2-7]|3[0-9]|6")

_SPACE = r"[ \u00a0]"
_INTERNATIONAL = re.compile(
    rf"(?<![\w.,+*/=^-])(?:\+|00{_SPACE}?(?=[1-9][\d \u00a0]*[ \u00a0/-]))[1-9]\d{{0,14}}"
    rf"(?:(?:{_SPACE}|[-./]|{_SPACE}?\(|\){_SPACE}?){{1,2}}\d{{1,14}}){{0,8}}(?![\w%])"
)
_NORTH_AMERICAN = re.compile(
    rf"(?<![\w.+/-])(?:1[ .-])?(?:\(\d{{3}}\){_SPACE}?|\d{{3}}[ .-])\d{{3}}[ .-]\d{{4}}(?![\w-]|[.,:]\d)"
)
_NATIONAL = re.compile(
    rf"(?<![\w.,:/+-])(?<!\d ){_SPACE}?(?:\(0\d{{1,4}}\)|0[1-9]\d{{0,4}})"
    rf"(?:{_SPACE}?[/-]{_SPACE}?|{_SPACE})\d{{2,9}}(?:[ -]\d{{1,9}}){{0,5}}(?![\w:/%-]|[.,]\d)"
)
_CALLED = re.compile(
    r"(\b(?:tele)?(?:phone|fon)(?: (?:number|no\.?))?|\b(?:tel|mobile|mobil|cell|handy|fax|whatsapp|sms|call|dial|ring)\b)"
    r"(\D{1,20}?)((?<![\d.,])\+?\(?\d[\d \u00a0()/.-]{5,20}\d)(?![\w%]|[.,:]\d)",
    re.IGNORECASE,
)
_DATE = re.compile(r"\(?(?:\d{1,2}[./-]\d{1,2}[./-]\d{2,4}|\d{4}[./-]\d{1,2}[./-]\d{1,2})(?!\d)")


PASSES = 8  # more than was ever needed


def redact(text: str) -> str:
    """The text with addresses, numbers and credentials replaced by `***`. Masking twice is masking once."""
    for _ in range(PASSES):
        before, text = text, _masked(text)
        if text == before:
            break  # else what a mask took away may make something of what stood around it
    return text


def _masked(text: str) -> str:
    text = mask_credentials(text)
    if "@" in text:
        text = _EMAIL.sub(lambda found: found[0] if found[0].startswith("git@") else MASK, text)
    if "%40" in text:
        text = _EMAIL_IN_URL.sub(MASK, text)
    if not _SOME_DIGITS.search(text):
        return text
    text = _DIGITS.sub(_without_cards, text)
    text = _CALLED.sub(_without_called, text)
    text = _INTERNATIONAL.sub(_if_phone(8), text)
    text = _NORTH_AMERICAN.sub(MASK, text)
    return _NATIONAL.sub(_if_phone(9), text)


def closing(redactor: Callable[[str], str]) -> Callable[[str], str]:
    """Another's redactor, which fails closed: where it raises or returns no text, nothing of the text is kept."""

    def masked(text: str) -> str:
        try:
            kept = redactor(text)
        except Exception as error:  # noqa: BLE001 - a stranger's function; its message may quote the text
            log.error("the redactor failed, so a text was masked whole: %s", type(error).__name__)
            return MASK
        if isinstance(kept, str):
            return kept
        log.error("the redactor returned no text, so a text was masked whole: %s", type(kept).__name__)
        return MASK

    return masked


def _if_phone(least: int):
    def masked(found: re.Match[str]) -> str:
        number = found[0]
        if not least <= _digits(number) <= 15 or _DATE.match(number.strip()) or _is_decimal(number):
            return number
        return number[: len(number) - len(number.lstrip())] + MASK

    return masked


def _without_called(found: re.Match[str]) -> str:
    number = found[3]
    if not 7 <= _digits(number) <= 15 or _DATE.match(number) or _is_decimal(number):
        return found[0]
    return found[1] + found[2] + MASK


def _digits(text: str) -> int:
    return sum(c.isdigit() for c in text)


def _is_decimal(number: str) -> bool:
    return re.fullmatch(r"\+? ?\d+\.\d+", number.strip()) is not None


def _without_cards(found: re.Match[str]) -> str:
    """The run of digit groups with each card number in it masked; what stands beside it stays."""
    text, groups = found[0], list(_GROUPS.finditer(found[0]))
    pieces, at, index = [], 0, 0
    while index < len(groups):
        length = groups[index].end() - groups[index].start()
        may_begin = length == 4 or length >= 13  # most do not, and there may be half a million
        count = may_begin and next((n for n in _widths(groups, index) if _is_card(groups[index : index + n])), 0)
        if count:
            pieces += [text[at : groups[index].start()], MASK]
            at = groups[index + count - 1].end()
        index += count or 1
    return "".join([*pieces, text[at:]])


def _widths(groups: list[re.Match[str]], index: int) -> Iterator[int]:
    """How many groups from here on make a number of a card's form; the most first."""
    for count in range(min(5, len(groups) - index), 1, -1):
        if tuple(len(group[0]) for group in groups[index : index + count]) in _CARD_SHAPES:
            yield count
    if 13 <= len(groups[index][0]) <= 19:
        yield 1


def _is_card(groups: list[re.Match[str]]) -> bool:
    number = "".join(group[0] for group in groups)
    return _CARD_START.match(number) is not None and _passes_luhn(number)


def _passes_luhn(number: str) -> bool:
    doubled = [int(digit) * 2 for digit in reversed(number)][1::2]
    plain = [int(digit) for digit in reversed(number)][::2]
    return len(set(number)) > 1 and (sum(plain) + sum(n - 9 if n > 9 else n for n in doubled)) % 10 == 0
