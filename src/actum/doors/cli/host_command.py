"""`actum host`: root delegates a cgroup subtree, so that limits hold for an ordinary user too."""

from __future__ import annotations

import os
import pwd

import click

from actum.doors.cli import command_table, exit_codes, terminal


@click.group("host", cls=command_table.Group)
def command() -> None:
    """Give an ordinary user a cgroup subtree, or take it back. Needs root."""


@command.command("delegate")
@click.option("--user", "name", required=True, metavar="USER", help="Login name or number.")
@click.option(
    "--pid",
    type=click.IntRange(min=1),
    metavar="PID",
    help="A process of that user to move into the subtree, with all it starts from then on."
    " cgroup v2 needs it; in a shell it is `--pid $$`.",
)
def delegate_subtree(name: str, pid: int | None) -> int:
    """Let USER's executions have limits on memory, CPU and processes, until the next boot."""
    from actum.sandbox.delegate import delegate, needs_pid

    user = _user(name)
    if pid is not None:
        _require_owner(pid, user)
    folders = delegate(user.pw_uid, user.pw_gid, pid)
    if command_table.wants_json():
        terminal.document({"uid": user.pw_uid, "folders": list(folders), "pid": pid})
        return exit_codes.SUCCESS
    terminal.line(f"{user.pw_name} (uid {user.pw_uid}) may make groups in:")
    for folder in folders:
        terminal.line(f"  {folder}")
    if not needs_pid():
        return exit_codes.SUCCESS
    if pid is not None:
        terminal.line(f"Process {pid} and its later children are in it.")
    else:
        terminal.aside(
            "The user's processes must be in it too. In their shell:"
            f" `sudo actum host delegate --user {name} --pid $$`"
        )
    return exit_codes.SUCCESS


@command.command("revoke")
@click.option("--user", "name", required=True, metavar="USER", help="Login name or number.")
def revoke_subtree(name: str) -> int:
    """Take the subtree back. Refused while something of USER's runs in a sandbox."""
    from actum.sandbox.delegate import revoke

    user = _user(name)
    revoke(user.pw_uid)
    if command_table.wants_json():
        terminal.document({"uid": user.pw_uid})
    else:
        terminal.line(f"{user.pw_name} (uid {user.pw_uid}) has no subtree any more.")
    return exit_codes.SUCCESS


def _user(name: str) -> pwd.struct_passwd:
    """By name, or by number; a number may have no entry in passwd (in a container)."""
    if name in ("root", "0"):
        raise click.BadParameter("root needs no subtree", param_hint="--user")
    try:
        return pwd.getpwuid(int(name)) if name.isdecimal() else pwd.getpwnam(name)
    except KeyError:
        if name.isdecimal():
            return pwd.struct_passwd((name, "", int(name), int(name), "", "", ""))
        raise click.BadParameter(f"there is no user {name!r}", param_hint="--user") from None


def _require_owner(pid: int, user: pwd.struct_passwd) -> None:
    """Only the user's own processes: any other would come under the user's limits."""
    try:
        owner = os.stat(f"/proc/{pid}").st_uid
    except FileNotFoundError:
        raise click.BadParameter(f"there is no process {pid}", param_hint="--pid") from None
    if owner != user.pw_uid:
        raise click.BadParameter(
            f"process {pid} belongs to uid {owner}, not to {user.pw_name}", param_hint="--pid"
        )
