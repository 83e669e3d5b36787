"""The agent of one text: counts its words into counts/."""

import json
import os
from pathlib import Path

item = json.loads(Path(os.environ["ACTUM_ITEM"]).read_text())
text = Path(item["input_files"][0]).read_text()
Path(item["output_files"][0]).write_text(f"{len(text.split())}\n")
if "second file" in text:
    Path("notes.txt").write_text("More than the item may write.\n")
