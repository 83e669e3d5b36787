"""Durable runs (seed 003): persisted, sealed configuration; a ledger; workers that check first."""
