"""`outrider` that drops a stream whose client does not read within half a second, and tells a silent one every two that it
is alive; run as `python -m tests.a2a.hasty`.
"""

from web import a2a_stream, cli


def main() -> None:
    a2a_stream.SLOW_S, a2a_stream.PING_S = 0.5, 2.0
    cli.main()


if __name__ == "__main__":
    main()
