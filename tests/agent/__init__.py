"""What the agent promises."""
