"""`outrider` that drops a stream whose client does not read within half a second; run as `python -m tests.a2a.hasty`."""

from web import a2a, cli

if __name__ == "__main__":
    a2a.SLOW_S = 0.5
    cli.main()
