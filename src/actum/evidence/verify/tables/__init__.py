"""Compares each table of the database with the signed log and receipts: one module, one pass."""
