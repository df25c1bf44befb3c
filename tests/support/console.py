"""The console as a person in front of it has it: what stands where, by the test ids of the page; and jobs to look at.

It holds no expectation of its own; what must be true is the tests' to say.
"""

from collections.abc import Callable
from typing import Any

from playwright.sync_api import ConsoleMessage, Dialog, Locator, Page, Route, expect

from tests.support.rules import Rule
from tests.support.server import Server

expect.set_options(timeout=10_000)  # milliseconds: the machine may be busy
SENTINEL = "the very last words of it"
LONG = f"Summary: much was found.\n\n{'All of it is told here, at length. ' * 430}\n\n{SENTINEL}"
HOSTILE = (
    "<img src=x onerror=alert(1)> <style>body{display:none}</style> <script>alert(1)</script>\n\n"
    "[a](javascript:alert(1)) ![beacon](http://beacon.example/x.png) <http://beacon.example/y> \x1b[31mred \u202egnp.exe\n\n"
    f"|{'a|' * 500}\n|{'-|' * 500}\n|{'b|' * 500}\n"
)
# A job's prompt says how it ends.
ENDS = [
    Rule(last_user="^Go long", text=LONG),
    Rule(last_user="^Go short", text="All green."),
    Rule(last_user="^Go wrong", status=400, text="no such model"),
    Rule(last_user="^Go half", text="Half a report", finish_reason="length"),
    Rule(last_user="^Go hostile", text=HOSTILE),
    Rule(last_user="^Go slow", gate="slow", text=LONG),
]

JOB = "[data-testid=report-card], [data-testid=job-line], [data-testid=job-note]"


class Console:
    """One tab. `requests` are the addresses that it asked for, `complaints` what the browser says went wrong in it:
    errors in a script, loads that its policy refused, dialogs that nobody wanted.
    """

    def __init__(self, page: Page, server: Server) -> None:
        self.page = page
        self.server = server
        self.requests: list[str] = []
        self.complaints: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._said)
        page.on("dialog", self._asked)

    def open(self, session: str | None = None) -> "Console":
        """Goes to a chat, or where the bare address leads; returns once the page hears what happens."""
        self.page.goto("about:blank")  # else only the end of the address would change
        with self.page.expect_response("**/api/events"):
            self.page.goto(self.server.url + (f"/#s={session}" if session else ""))
        return self

    def second_tab(self) -> "Console":
        """Another tab of the same browser."""
        return Console(self.page.context.new_page(), self.server)

    def the(self, testid: str, text: str | None = None) -> Locator:
        """All that have this test id, or those in which the text stands."""
        return self.page.get_by_test_id(testid).filter(has_text=text)

    def job(self, description: str) -> Locator:
        """A job where it stands in its chat, whatever it looks like."""
        title = self.page.get_by_role("heading", name=description, exact=True)
        return self.the("timeline").locator(JOB).filter(has=title)

    def say(self, text: str) -> None:
        self.the("composer").fill(text)
        self.the("composer").press("Enter")

    def read(self, description: str) -> Locator:
        """Opens a job's report, and returns the reader's text."""
        self.job(description).get_by_test_id("open-report").click()
        return self.the("viewer-body")

    def draw_over(self, element: Locator) -> None:
        """Selects some of its text with the mouse."""
        box = element.bounding_box()
        assert box
        self.page.mouse.move(box["x"] + 20, box["y"] + 10)
        self.page.mouse.down()
        self.page.mouse.move(box["x"] + 120, box["y"] + 10, steps=3)
        self.page.mouse.up()

    def hold(self, addresses: str) -> list[Callable[[], None]]:
        """Keeps the server's answers to such requests from the page; each is handed over when it is called."""
        held: list[Callable[[], None]] = []

        def keep(route: Route) -> None:
            answer = route.fetch()
            held.append(lambda: route.fulfill(response=answer))

        self.page.route(addresses, keep)
        return held

    def until(self, condition: Callable[[], bool]) -> None:
        """Lets the page go on until this is so."""
        self.server.wait(lambda: self.page.wait_for_timeout(10) or condition())

    def asked_for(self, part: str) -> int:
        """How many requests had this in their address."""
        return sum(part in url for url in self.requests)

    def scrolls_sideways(self) -> bool:
        """Whether the page, the conversation or the reader is wider than the room it has."""
        boxes = "[document.documentElement, document.querySelector('#scroll'), document.querySelector('#viewer-body')]"
        return self.page.evaluate(f"{boxes}.some((box) => box.scrollWidth > box.clientWidth)")

    def _said(self, message: ConsoleMessage) -> None:
        # A status that is no success, or a server that is down, is no fault of the page's.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.complaints.append(message.text)

    def _asked(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()


def look(element: Locator) -> tuple[str, ...]:
    """What makes an element look different at a glance: surface, border, shadow, and the colour of what stands first."""
    return tuple(
        element.evaluate(
            """(element) => {
                const style = getComputedStyle(element);
                const first = getComputedStyle(element.querySelector("span, h2"));
                return [style.backgroundColor, style.borderInlineStart, style.boxShadow, first.color];
            }"""
        )
    )


def send_out(server: Server, session: str, **jobs: str) -> dict[str, dict[str, Any]]:
    """One batch in a new chat: description=prompt. Returns the jobs by description."""
    server.post("/api/sessions", id=session)
    specs = [{"description": name, "prompt": prompt} for name, prompt in jobs.items()]
    made = server.post("/api/background", session=session, jobs=specs)["jobs"]
    return {job["description"]: job for job in made}


def ended(server: Server, session: str, **jobs: str) -> dict[str, dict[str, Any]]:
    """The same, once all have ended and the briefing over them too."""
    sent = send_out(server, session, **jobs)
    server.wait(lambda: all(job["notified"] for job in server.jobs(session)))
    return sent
