"""What is remembered of sessions, for whom, and what is not."""
