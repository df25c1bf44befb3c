"""Durable background work: sessions, tasks, runs, jobs, batches, delivery. Knows no model, no HTTP, no A2A type."""
