"""Profiles and plugins, through servers that have a plugin installed."""
