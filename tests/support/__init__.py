"""What the tests stand on: a scripted model, real server processes, a clock that tests move."""
