"""The agent of the total: adds up counts/."""

from pathlib import Path

total = sum(int(path.read_text()) for path in Path("counts").glob("*.txt"))
Path("total.txt").write_text(f"{total}\n")
