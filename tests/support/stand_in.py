"""A small server that is not Outrider, to show with what becomes of processes: `python -m tests.support.stand_in`.

It has a child, says what it was given of the environment, and ends with 7 when it is asked to.
"""

import http.server
import os
import signal
import subprocess
import sys


class Ready(http.server.BaseHTTPRequestHandler):
    """Is ready, and nothing else."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/readyz" else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()


def main() -> None:
    if "fail" in os.environ:
        sys.exit("this setting is bad")
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print("child", child.pid, "model", os.environ.get("OUTRIDER_MODEL"), flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    http.server.HTTPServer(("127.0.0.1", int(os.environ["OUTRIDER_PORT"])), Ready).serve_forever()


if __name__ == "__main__":
    main()
