"""What the paths of a plan lead to is looked at for every start, and the plan is proved again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from actum import Runtime
from actum.contract.call import Plan
from actum.contract.model import RunnerKind
from actum.errors import Refused
from actum.runners.init_request import Description
from actum.runners.local import LocalRunner
from actum.testing import FakeRunner, captured
from actum.value import replace


@pytest.fixture
def plan() -> Iterator[Plan]:
    """Of a shell that writes directly to the project: control files are covered."""
    with Runtime.temporary(pool=False) as rt:
        fake = FakeRunner(captured())
        direct = replace(rt.settings, transactions=False)
        with Runtime(direct, runners={RunnerKind.LOCAL: fake}) as faked:
            faked.exec("shell", stdin="echo x", cwd=rt.settings.root).check()
        yield fake.plans[0]


@pytest.fixture
def described(plan: Plan) -> Description:
    description = Description(plan)
    assert description.as_found() == description.as_found()
    return description


def test_a_folder_that_was_made_anew_is_another_one(plan: Plan, described: Description) -> None:
    before = described.as_found()
    (granted,) = plan.policy.write
    Path(granted).rename(f"{granted}.old")
    with pytest.raises(Refused, match=r"sandbox\.filesystem\.write: .*No such file"):
        described.as_found()
    Path(granted).mkdir()
    for old in Path(f"{granted}.old").iterdir():
        old.rename(f"{granted}/{old.name}")
    Path(f"{granted}.old").rmdir()
    after = described.as_found()
    assert [row["inode"] for row in after.request["grants"]] != [
        row["inode"] for row in before.request["grants"]
    ]


def test_a_control_file_that_became_a_link_is_refused(plan: Plan, described: Description) -> None:
    covered = described.as_found().request["protect"]
    file = Path(next(path for path in covered if path.endswith("actum.toml")))
    file.rename(file.with_name("elsewhere.toml"))
    file.symlink_to("elsewhere.toml")
    with pytest.raises(Refused, match="symbolic link"):
        described.as_found()
    file.unlink()
    with pytest.raises(Refused, match="does not exist"):
        described.as_found()
    file.with_name("elsewhere.toml").rename(file)
    assert described.as_found().request["protect"] == covered


def test_a_folder_on_the_way_that_became_a_link_is_refused(described: Description) -> None:
    covered = described.as_found().request["protect"]
    folder = Path(next(path for path in covered if path.endswith("actum.toml"))).parent
    folder.rename(f"{folder}.moved")
    folder.symlink_to(f"{folder}.moved")
    with pytest.raises(Refused, match="symbolic link"):
        described.as_found()


def test_what_appears_is_closed_too(plan: Plan, described: Description) -> None:
    repository = Path(plan.working_directory) / ".git"
    assert str(repository) not in described.as_found().request["protect"]
    repository.mkdir()
    assert str(repository) in described.as_found().request["protect"]


@pytest.mark.sandbox
def test_a_plan_that_was_changed_since_it_ran_is_refused(plan: Plan) -> None:
    runner = LocalRunner()
    try:
        for _ in range(2):
            assert runner.run(plan, lambda _event: None).stdout.kept == b"x\n"
        assert isinstance(plan.environment, dict)
        plan.environment["LD_PRELOAD"] = "x"
        with pytest.raises(Refused, match="differs from the one that was validated"):
            runner.run(plan, lambda _event: None)
        del plan.environment["LD_PRELOAD"]
        assert runner.run(plan, lambda _event: None).stdout.kept == b"x\n"
    finally:
        runner.close()
