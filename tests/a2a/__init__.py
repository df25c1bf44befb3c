"""The A2A edge against real server processes: by the official client, and by bytes that no client would send."""
