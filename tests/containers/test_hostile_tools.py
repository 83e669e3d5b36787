"""Tools that attack their container: the tests of tests/security, one or more per promise, on
Docker and on Podman. The fixture `jail` of this folder is a project whose tools run in containers.
`make test` runs each on one of the engines, by turns; `make soak` runs each on both.

Tests that name every file of /dev, /proc or /sys are for the local runner: an engine shows more
names there, each of them covered, empty or read-only. The last test of this file says so.
"""

from __future__ import annotations

import pytest

from hostile.jail import Jail

from .loaded import chosen_tests

pytestmark = [pytest.mark.sandbox, pytest.mark.soak]

_ENVIRONMENT = "security/environment/test_environment.py"
_READING = "security/filesystem/test_reading.py"
_WRITING = "security/filesystem/test_writing.py"
_OUTPUTS = "security/filesystem/test_outputs.py"
_NETWORK = "security/isolation/test_network.py"
_CALLS = "security/kernel/test_allow_list.py"
_SURFACE = "security/kernel/test_kernel_surface.py"
_SET_ID = "security/kernel/test_set_id_files.py"
_INIT = "security/processes/test_init.py"
_SURVIVORS = "security/processes/test_survivors.py"
_CHILDREN = "security/resources/test_children.py"
_DISK = "security/resources/test_cpu_disk_descriptors.py"
_MEMORY = "security/resources/test_memory.py"
_STREAMS = "security/resources/test_output_streams.py"

CHOSEN = {
    _ENVIRONMENT: [
        "test_only_the_baseline_arrives_when_nothing_is_asked",
        "test_a_declared_name_arrives_with_its_exact_value",
        "test_arguments_arrive_one_by_one_and_unchanged",
    ],
    _READING: [
        "test_a_private_file_elsewhere_cannot_be_read_through",
        "test_keys_and_records_of_the_project_cannot_be_read",
        "test_a_denied_directory_stays_hidden_through",
        "test_deny_wins_over_an_explicit_read_and_write_of_the_same_path",
        "test_an_explicit_read_list_is_all_that_can_be_read",
    ],
    _WRITING: [
        "test_nothing_outside_the_working_directory_can_be_created",
        "test_a_readable_file_outside_the_working_directory_cannot_be",
        "test_system_files_cannot_be_written_and_scratch_dies_with_the_sandbox",
        "test_an_explicit_write_list_is_all_that_can_be_written",
        "test_files_that_a_tool_writes_belong_to_the_caller",
    ],
    _OUTPUTS: [
        "test_artifacts_are_collected_with_name_size_hash_and_trace",
        "test_a_planted_output_is_named_and_not_followed",
        "test_artifact_storage_is_bounded",
        "test_a_tools_files_cannot_make_the_host_block",
    ],
    _NETWORK: [
        "test_an_address_of_the_host_is_not_reached",
        "test_an_abstract_socket_of_the_host_is_not_reached",
        "test_a_socket_file_in_the_working_directory_is_not_reached",
        "test_no_interface_but_a_private_loopback_and_no_route",
        "test_a_tools_own_server_works_on_its_own_loopback",
    ],
    _CALLS: [
        "test_a_call_of_a_break_out_ends_the_tree",
        "test_arguments_that_no_ordinary_program_needs_are_refused",
        "test_to_leave_a_namespace_ends_the_tree",
        "test_a_flood_does_not_keep_the_init_from_its_work",
    ],
    _SURFACE: [
        "test_a_refused_call_fails_and_is_on_record",
        "test_the_32_bit_system_call_table_kills_the_caller",
        "test_neither_sysfs_nor_any_cgroup_file_is_there",
    ],
    _SET_ID: ["test_a_file_cannot_be_made_set_id"],
    _INIT: [
        "test_the_init_survives_a_signal",
        "test_killing_everything_ends_only_the_tool",
        "test_a_tool_starts_with_three_descriptors_and_nothing_more",
        "test_a_report_of_the_tools_own_is_just_output",
        "test_a_zombie_farm_is_bounded_and_reaped",
        "test_a_violation_in_a_grandchild_ends_the_whole_tree",
    ],
    _SURVIVORS: [
        "test_a_tool_that_ends_takes_with_it",
        "test_at_the_deadline_a_tool_is_dead_that",
        "test_a_cancelled_tool_is_dead_that",
    ],
    _CHILDREN: [
        "test_exactly_as_many_children_as_allowed",
        "test_no_child_at_all_where_none_is_allowed",
        "test_many_may_make_threads_at_once_where_no_child_leaves_room",
        "test_the_room_of_ended_threads_is_not_traded_for_children",
        "test_threads_are_legal_where_children_are_not",
        "test_threads_are_bounded",
        "test_a_fork_bomb_leaves_the_host_untouched_and_ends",
    ],
    _DISK: [
        "test_one_core_is_one_core_however_many_processes_want_more",
        "test_scratch_is_bounded",
        "test_a_single_file_is_bounded",
        "test_descriptors_are_bounded",
        "test_no_core_file_is_written",
    ],
    _MEMORY: [
        "test_too_much_memory_is_found_in",
        "test_a_shell_that_hides_its_childs_death_is_killed_all_the_same",
        "test_what_fits_is_let_live_and_measured",
    ],
    _STREAMS: [
        "test_both_streams_flooded_at_once_without_a_newline",
        "test_the_bound_itself_is_not_truncated",
        "test_output_that_is_not_text_comes_back_exactly",
    ],
}

globals().update(chosen_tests(CHOSEN))


def test_every_container_has_namespaces_of_its_own(jail: Jail) -> None:
    """But for those of control groups on Podman 4.3, which ignores `CgroupnsMode`."""
    script = "for each in ipc mnt net pid uts; do readlink /proc/self/ns/$each; done"
    first, second = (set(jail.said(jail.sh(script)).split()) for _ in range(2))
    assert len(first) == len(second) == 5
    assert not (first | second) & set(jail.outside(script).split())


def test_what_an_engine_shows_beside_the_tool_says_nothing_and_takes_nothing(jail: Jail) -> None:
    """The init, the kernel's files and devices: there by name, closed to the tool."""
    script = """
import os, stat
for path in ('/proc/1/environ', '/proc/1/mem', '/proc/1/maps'):
    try: open(path, 'rb').read(1); print(path)
    except OSError: pass
for path in ('/proc/1/fd', '/proc/1/root'):
    try: os.listdir(path); print(path)
    except OSError: pass
for path in ('/proc/sys/kernel/core_pattern', '/proc/sysrq-trigger', '/proc/sys/vm/drop_caches',
             '/sys/kernel/uevent_helper', '/proc/kcore', '/proc/kmsg'):
    try: os.close(os.open(path, os.O_WRONLY)); print(path)
    except OSError: pass
for folder, _, names in os.walk('/dev'):
    for name in names:
        found = os.lstat(os.path.join(folder, name))
        if stat.S_ISBLK(found.st_mode): print(name)
status = dict(line.split(':', 1) for line in open('/proc/self/status'))
print(*{int(status[name], 16) for name in ('CapEff', 'CapPrm', 'CapBnd', 'CapInh', 'CapAmb')})
print(status['NoNewPrivs'].strip(), '0' in status['Uid'].split(), '0' in status['Groups'].split())
"""
    assert "/proc/sys/kernel/core_pattern" in jail.outside_python(script)
    assert jail.said(jail.python(script)) == "0\n1 False False"
