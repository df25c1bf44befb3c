"""What stands on pages and in files that are taken in, made here: HTML, a PDF, and what is broken."""

import gzip
import io

from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

from tests.support.receiver import Answer

HTML = """<!doctype html><html><head><title>Owls &amp; mice</title><script>var evil = 1</script></head><body>
<nav><a href="/">Home sweet home</a></nav><main><h1>Owls</h1><p>They <b>hunt</b> at night.
<ul><li>mice<li>voles</ul><table><tr><th>owl<th>prey<tr><td>barn<td>mouse</table></main><form>Subscribe</form></body>"""


def html(text: str = HTML, **headers: str) -> Answer:
    return Answer(200, {"Content-Type": "text/html; charset=utf-8", **headers}, body=text.encode())


def packed(text: str) -> Answer:
    headers = {"Content-Type": "text/plain", "Content-Encoding": "gzip"}
    return Answer(200, headers, body=gzip.compress(text.encode()))


def pdf(text: str, password: str = "") -> bytes:
    """A PDF of one page that says this."""
    writer = PdfWriter()
    page = writer.add_blank_page(400, 200)
    stream = DecodedStreamObject()
    stream.set_data(f"BT /F1 12 Tf 20 100 Td ({text}) Tj ET".encode())
    font = {"/Type": "/Font", "/Subtype": "/Type1", "/BaseFont": "/Helvetica"}
    named = DictionaryObject({NameObject(key): NameObject(value) for key, value in font.items()})
    fonts = DictionaryObject({NameObject("/F1"): named})
    page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
    page[NameObject("/Contents")] = writer._add_object(stream)
    if text:
        writer.add_metadata({"/Title": f"About {text}"})
    if password:
        writer.encrypt(password)
    made = io.BytesIO()
    writer.write(made)
    return made.getvalue()
