"""`actum exec TOOL -c TEXT`: the refusal says where options of a tool go."""

from __future__ import annotations

from click.testing import CliRunner

from actum.doors.cli.exec_command import command


def test_an_option_of_the_tool_is_answered_with_the_place_for_it() -> None:
    answer = CliRunner().invoke(command, ["python", "-c", "print(1)"], prog_name="exec")
    assert answer.exit_code == 2
    assert "`actum exec python -- -c …`" in answer.output
    typo = CliRunner().invoke(command, ["--timout", "5s", "python"], prog_name="exec")
    assert "--timeout" in typo.output
    assert "come after" not in typo.output
