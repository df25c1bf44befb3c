"""What the registry promises."""
