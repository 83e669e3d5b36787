"""Each table of the database, held against the signed log and receipts: one module, one pass."""
