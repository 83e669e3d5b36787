"""The refusal of what needs the folder of a run that was submitted in another project."""

from __future__ import annotations

from actum.errors import Refused


def elsewhere(run_id: str, workspace: str = "") -> Refused:
    folder = f"the folder {workspace} of another project" if workspace else "another project"
    return Refused(
        "RUN_FOLDER_ELSEWHERE",
        f"The run {run_id} is for {folder}, here or on another machine. A run is carried out,"
        " judged and verified where its folder is.",
        remedy="Nothing was changed. Do this in that project, on its machine; `actum worker` there"
        " carries its runs out.",
    )
