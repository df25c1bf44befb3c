"""The program that makes Markdown out of a page or a PDF: run as a process of its own, which can be killed.

Takes a media type and a charset as arguments and the bytes from its input, and writes `{"title", "text"}`, or
`{"unreadable"}` with the reason in words. It opens no file and no connection, and knows nothing of ours.
"""

import io
import json
import sys

import nh3
from bs4 import BeautifulSoup, Tag, UnicodeDammit
from markdownify import MarkdownConverter
from pypdf import PdfReader
from pypdf.errors import PyPdfError

try:
    import resource
except ImportError:  # a system that bounds no process; its time is bounded all the same
    resource = None

MEMORY = 1 << 30
CPU_S = 60
MAX_PAGES = 2000
# What is on a page and not of it.
ASIDE = {"script", "style", "noscript", "template", "svg", "nav", "form", "iframe", "object", "button", "dialog"}
KEPT = (nh3.ALLOWED_TAGS | {"title", "main"}) - ASIDE
PDF = "application/pdf"


class Unreadable(ValueError):
    """Nothing can be made of it; the text says why."""


def converted(media_type: str, charset: str | None, body: bytes) -> dict[str, str]:
    """Title and text. Raises `Unreadable`."""
    return of_pdf(body) if media_type == PDF else of_html(body, charset)


def of_html(body: bytes, charset: str | None) -> dict[str, str]:
    """The page's own text: its `main` or only `article`, where it has one, without what leads elsewhere."""
    said = UnicodeDammit(body, [charset] if charset else [], is_html=True).unicode_markup
    if said is None:
        raise Unreadable("nobody can say in which encoding it is")
    # Read as a browser reads it, with all that may be left out put in, and written well-formed.
    page = BeautifulSoup(nh3.clean(said, tags=KEPT, clean_content_tags=ASIDE), "html.parser")
    title = page.title.extract().get_text(" ", strip=True) if page.title else ""
    chosen = _one(page, "main") or _one(page, "article") or page
    written = MarkdownConverter(heading_style="ATX", strip=["img"], bullets="-", escape_misc=False)
    return {"title": title, "text": _tidy(written.convert_soup(chosen))}


def _one(page: BeautifulSoup, name: str) -> Tag | None:
    """The only element of this name that says anything."""
    found = [one for one in page(name) if one.get_text(strip=True)]
    return found[0] if len(found) == 1 else None


def of_pdf(body: bytes) -> dict[str, str]:
    """The text of its pages, a heading before each."""
    reader = PdfReader(io.BytesIO(body))
    if reader.is_encrypted and not reader.decrypt(""):
        raise Unreadable("it is a PDF with a password")
    if len(reader.pages) > MAX_PAGES:
        raise Unreadable(f"it is a PDF of more than {MAX_PAGES} pages")
    texts = [page.extract_text().strip() for page in reader.pages]
    if not any(texts):
        raise Unreadable("it is a PDF without text, perhaps of scanned pages")
    title = str(reader.metadata.title or "") if reader.metadata else ""
    numbered = [f"## Page {number}\n\n{text}" for number, text in enumerate(texts, 1) if text]
    return {"title": title.strip(), "text": _tidy("\n\n".join(numbered))}


def _tidy(text: str) -> str:
    """At most one empty line between two others, and no space at the end of any."""
    lines: list[str] = []
    for line in map(str.rstrip, text.splitlines()):
        if line or (lines and lines[-1]):
            lines.append(line)
    return "\n".join(lines).strip()


def main() -> None:
    """Read, convert, answer."""
    if resource:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    media_type, charset = sys.argv[1:]
    body = sys.stdin.buffer.read()
    try:
        made = converted(media_type, charset or None, body)
    except Unreadable as why:
        made = {"unreadable": str(why)}
    except (PyPdfError, RecursionError, MemoryError, ValueError, LookupError, TypeError, AttributeError) as error:
        made = {"unreadable": f"it is damaged ({type(error).__name__})"}
    sys.stdout.write(json.dumps(made))


if __name__ == "__main__":
    main()
