"""The doors: settings, A2A, the HTTP API, events, the console, the command line. Puts everything together."""
