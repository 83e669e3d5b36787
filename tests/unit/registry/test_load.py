"""Reading tool folders: strict, every problem at once, the seed's examples unchanged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from actum.contract.model import RunnerKind
from actum.errors import ContractInvalid
from actum.registry.load import load_adapters, load_tool
from actum.registry.model import (
    Adapter,
    AdapterKind,
    AdapterStatus,
    CliInterface,
    Retry,
    SandboxOverride,
    Transform,
)

Edit = Callable[[str, str, str], None]
ADP_001 = "ripgrep/adapters/ripgrep-search.yaml"
TOOL = "ripgrep/tool.yaml"


def _proves(rows: list[str]) -> list[pytest.MarkDecorator]:
    return [pytest.mark.req(*rows)] if rows else []


@pytest.mark.req("000-128")
def test_the_first_example_of_the_seed_loads_as_written(repository: Any) -> None:
    (adapter,) = load_adapters(repository.folder("ripgrep"))
    interface = CliInterface(
        executable="rg",
        base_args=("--json", "--no-heading"),
        arg_mapping={
            "pattern": "{pattern}",
            "path": "{path}",
            "ignore_case": "-i",
            "max_count": "-m {value}",
        },
        env_mapping={},
    )
    assert adapter == Adapter(
        adapter_id="ADP-001",
        name="ripgrep-search",
        version="1.0.0",
        tool_id="TL-003",
        kind=AdapterKind.CLI,
        cli=interface,
        interface={
            "executable": "rg",
            "base_args": ["--json", "--no-heading"],
            "arg_mapping": interface.arg_mapping,
            "env_mapping": {},
        },
        input_transforms=(),
        output_transforms=(Transform(type="parse", spec="json_lines"),),
        retry=Retry(max_attempts=1, backoff_ms=0, retryable_codes=()),
        fallback=None,
        override=SandboxOverride(timeout_ms=60_000, memory_mb=256, network_enabled=False),
        author="Runtime Agent",
        created="2026-01-16",
        updated="2026-01-16",
        status=AdapterStatus.ACTIVE,
        sha256=adapter.sha256,
    )
    assert list(interface.arg_mapping) == list(adapter.cli.arg_mapping if adapter.cli else ())


@pytest.mark.req("000-100", "000-138")
def test_the_second_example_of_the_seed_loads_as_written(
    repository: Any, add_tool: Callable[..., None]
) -> None:
    add_tool("rest", "TL-100", "ADP-002.yaml")
    (adapter,) = load_adapters(repository.folder("rest"))
    assert (adapter.adapter_id, adapter.kind, adapter.cli) == ("ADP-002", AdapterKind.API, None)
    assert adapter.interface == {
        "base_url": "https://api.example.com/v1",
        "auth_method": "bearer",
        "headers": {"Content-Type": "application/json", "Accept": "application/json"},
        "endpoint_mapping": {
            "get_resource": "GET /resources/{id}",
            "list_resources": "GET /resources",
            "create_resource": "POST /resources",
        },
    }
    assert adapter.input_transforms == (Transform(type="validate", spec="json_schema"),)
    assert adapter.output_transforms == (Transform(type="extract", spec="$.data"),)
    assert adapter.retry == Retry(
        max_attempts=3, backoff_ms=1000, retryable_codes=(429, 500, 502, 503)
    )
    assert adapter.override == SandboxOverride(
        timeout_ms=30_000, network_enabled=True, network_allow=("api.example.com",)
    )
    assert adapter.status is AdapterStatus.EXPERIMENTAL


@pytest.mark.req("000-108", "000-147")
def test_the_third_example_of_the_seed_loads_as_written(
    repository: Any, add_tool: Callable[..., None]
) -> None:
    add_tool("files", "TL-200", "ADP-003.yaml")
    (adapter,) = load_adapters(repository.folder("files"))
    assert (adapter.adapter_id, adapter.kind) == ("ADP-003", AdapterKind.MCP)
    assert adapter.interface == {
        "server": "filesystem-server",
        "transport": "stdio",
        "tool_mapping": {
            "read_file": "read_file",
            "write_file": "write_file",
            "list_directory": "list_directory",
        },
    }
    assert adapter.output_transforms == (Transform(type="extract", spec="$.content"),)
    assert adapter.retry == Retry(max_attempts=2, backoff_ms=500, retryable_codes=())
    assert adapter.override == SandboxOverride(
        timeout_ms=10_000, memory_mb=128, network_enabled=False
    )


def rejected(repository: Any, field: str, name: str = "ripgrep") -> None:
    with pytest.raises(ContractInvalid) as invalid:
        load_adapters(repository.folder(name))
    fields = [problem.field for problem in invalid.value.problems]
    assert field in fields, fields
    for problem in invalid.value.problems:
        assert problem.file and (problem.line or not problem.field), problem


ADAPTER_REFUSALS = [
    pytest.param(old, new, field, marks=_proves(rows), id=f"{field}-{new[:30]!r}")
    for old, new, field, rows in [
        ("adapter_id: ADP-001\n", "", "adapter_id", ["000-89"]),
        ("name: ripgrep-search\n", "", "name", ["000-90"]),
        ('version: "1.0.0"', 'version: "1.0"', "version", ["000-91"]),
        ('version: "1.0.0"', 'version: "v1.0.0"', "version", ["000-91"]),
        ('version: "1.0.0"', 'version: "01.0.0"', "version", ["000-91"]),
        ('version: "1.0.0"', "version: latest", "version", ["000-91"]),
        ('version: "1.0.0"', "version: 1.0", "version", ["000-91"]),
        ("tool_id: TL-003\n", "", "tool_id", ["000-92"]),
        ("tool_id: TL-003", "tool_id: TL-004", "tool_id", ["000-92"]),
        ("type: cli", "type: grpc", "type", ["000-93"]),
        ("type: cli", "type: CLI", "type", ["000-93"]),
        ("type: cli", "type: api", "interface.api", ["000-94"]),
        ("executable: rg", "executable: bin/rg", "interface.cli.executable", []),
        ("env_mapping: {}", "env_mapping: {p: LD_PRELOAD}", "interface.cli.env_mapping.p", []),
        ("env_mapping: {}", "env_mapping: {p: PATH}", "interface.cli.env_mapping.p", []),
        ("type: parse", "type: rename", "transforms.output[0].type", []),
        ("type: parse", "type: shout", "transforms.output[0].type", []),
        ("      spec: json_lines\n", "", "transforms.output[0].spec", []),
        ("spec: json_lines", "spec: xml", "transforms.output[0].spec", []),
        ("spec: json_lines", "spec: {a: b}", "transforms.output[0].spec", []),
        (
            "input: []",
            "input: [{type: parse, spec: json}]",
            "transforms.input[0].type",
            [],
        ),
        ("input: []", "input: [{type: rename}]", "transforms.input[0].spec", ["000-111"]),
        ("input: []", "input: [{type: rename, spec: x}]", "transforms.input[0].spec", ["000-111"]),
        (
            "input: []",
            "input: [{type: rename, spec: {a: 1}}]",
            "transforms.input[0].spec",
            ["000-111"],
        ),
        ("input: []", "input: [{type: map, spec: []}]", "transforms.input[0].spec", ["000-111"]),
        ("input: []", "input: [{type: default, spec: x}]", "transforms.input[0].spec", ["000-111"]),
        (
            "input: []",
            "input: [{type: validate, spec: x}]",
            "transforms.input[0].spec",
            ["000-111"],
        ),
        (
            "input: []",
            "input: [{type: validate, spec: {type: nope}}]",
            "transforms.input[0].spec",
            ["000-111"],
        ),
        (
            "input: []",
            'input: [{type: validate, spec: {"$ref": "file:///etc/passwd"}}]',
            "transforms.input[0].spec",
            ["000-111"],
        ),
        ("max_attempts: 1", "max_attempts: 0", "errors.retry.max_attempts", []),
        ("max_attempts: 1", "max_attempts: 1.0", "errors.retry.max_attempts", []),
        ("backoff_ms: 0", "backoff_ms: -1", "errors.retry.backoff_ms", []),
        ("retryable_codes: []", "retryable_codes: [x]", "errors.retry.retryable_codes[0]", []),
        (
            "fallback: null",
            "fallback: {adapter_id: ADP-404, condition: on_error}",
            "errors.fallback.adapter_id",
            ["000-117"],
        ),
        (
            "fallback: null",
            "fallback: {adapter_id: ADP-001, condition: on_error}",
            "errors.fallback.adapter_id",
            ["000-117"],
        ),
        (
            "fallback: null",
            "fallback: {adapter_id: ADP-011, condition: on_error}",
            "errors.fallback.adapter_id",
            ["000-117"],
        ),
        (
            "fallback: null",
            "fallback: {adapter_id: ADP-002, condition: sometimes}",
            "errors.fallback.condition",
            [],
        ),
        ("timeout_ms: 60000", "timeout_ms: 999", "sandbox_override.timeout_ms", []),
        ("timeout_ms: 60000", "timeout_ms: 600001", "sandbox_override.timeout_ms", []),
        ("memory_mb: 256", "memory_mb: 63", "sandbox_override.memory_mb", []),
        ("memory_mb: 256", "memory_mb: 4097", "sandbox_override.memory_mb", []),
        ("enabled: false", "enabled: 'no'", "sandbox_override.network.enabled", []),
        ("  author: Runtime Agent\n", "", "metadata.author", ["000-123"]),
        ('created: "2026-01-16"', "created: yesterday", "metadata.created", ["000-124"]),
        ('created: "2026-01-16"', 'created: "2026-02-30"', "metadata.created", ["000-124"]),
        ('updated: "2026-01-16"', 'updated: "16.01.2026"', "metadata.updated", ["000-125"]),
        ('updated: "2026-01-16"', 'updated: "2025-01-16"', "metadata.updated", ["000-125"]),
        ("status: active", "status: blocked", "metadata.status", ["000-126"]),
        ("status: active", "status: Active", "metadata.status", ["000-126"]),
        ("type: cli", "type: cli\nsurprise: 1", "surprise", []),
    ]
]


@pytest.mark.parametrize(("old", "new", "field"), ADAPTER_REFUSALS)
def test_a_malformed_adapter_is_refused_by_field_and_place(
    repository: Any, edit: Edit, old: str, new: str, field: str
) -> None:
    edit(ADP_001, old, new)
    rejected(repository, field)


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        pytest.param(old, new, field, marks=_proves(rows), id=f"{field}-{new[:20]}")
        for old, new, field, rows in [
            ("base_url: ", "base_link: ", "interface.api.base_url", []),
            ("auth_method: bearer", "auth_method: basic", "interface.api.auth_method", ["000-100"]),
            ("Accept: application/json", "Accept: 1", "interface.api.headers.Accept", []),
            (
                '"GET /resources"',
                '"FETCH /resources"',
                "interface.api.endpoint_mapping.list_resources",
                [],
            ),
            ('spec: "$.data"', "spec: data", "transforms.output[0].spec", []),
        ]
    ],
)
def test_a_malformed_api_adapter_is_refused_by_field(
    repository: Any, add_tool: Callable[..., None], edit: Edit, old: str, new: str, field: str
) -> None:
    add_tool("rest", "TL-100", "ADP-002.yaml")
    edit("rest/adapters/ADP-002.yaml", old, new)
    rejected(repository, field, "rest")


@pytest.mark.req("000-108")
def test_an_mcp_transport_outside_the_three_is_refused(
    repository: Any, add_tool: Callable[..., None], edit: Edit
) -> None:
    add_tool("files", "TL-200", "ADP-003.yaml")
    edit("files/adapters/ADP-003.yaml", "transport: stdio", "transport: carrier-pigeon")
    rejected(repository, "interface.mcp.transport", "files")


SDK = """\
  sdk:
    language: python
    package: example
    import_path: example.api
    function_mapping:
      add: add_numbers
"""


@pytest.mark.req("000-94", "000-103")
def test_only_the_block_of_the_adapters_type_is_used(repository: Any, edit: Edit) -> None:
    edit(ADP_001, "interface:\n", f"interface:\n{SDK}")
    (as_cli,) = load_adapters(repository.folder("ripgrep"))
    assert as_cli.cli is not None
    assert as_cli.interface["executable"] == "rg"
    edit(ADP_001, "type: cli", "type: sdk")
    (as_sdk,) = load_adapters(repository.folder("ripgrep"))
    assert as_sdk.cli is None
    assert as_sdk.interface == {
        "language": "python",
        "package": "example",
        "import_path": "example.api",
        "function_mapping": {"add": "add_numbers"},
    }
    edit(ADP_001, "language: python", "language: cobol")
    rejected(repository, "interface.sdk.language")


@pytest.mark.req("000-117")
def test_a_fallback_to_another_adapter_of_the_tool_is_accepted(repository: Any, edit: Edit) -> None:
    folder = repository.folder("ripgrep") / "adapters"
    text = (folder / "ripgrep-search.yaml").read_text()
    (folder / "other.yaml").write_text(text.replace("ADP-001", "ADP-101"))
    edit(ADP_001, "fallback: null", "fallback: {adapter_id: ADP-101, condition: exit_code:2}")
    first, second = load_adapters(repository.folder("ripgrep"))
    assert first.fallback is not None
    assert (first.fallback.adapter_id, first.fallback.condition) == ("ADP-101", "exit_code:2")
    assert second.fallback is None


def test_two_adapters_with_one_id_are_refused(repository: Any) -> None:
    folder = repository.folder("ripgrep") / "adapters"
    (folder / "zz.yaml").write_text((folder / "ripgrep-search.yaml").read_text())
    rejected(repository, "adapter_id")


def test_a_file_that_only_looks_like_an_adapter_is_refused(repository: Any) -> None:
    folder = repository.folder("ripgrep") / "adapters"
    (folder / "ripgrep-search.yaml").rename(folder / "ripgrep-search.yml")
    with pytest.raises(ContractInvalid, match="rename or move it"):
        load_adapters(repository.folder("ripgrep"))


REGISTRY_FIELDS = [
    "tool_id",
    "name",
    "version",
    "owner",
    "provenance",
    "provenance.repo_url",
    "provenance.commit_or_tag",
    "provenance.checksum",
    "provenance.license",
    "scope",
    "scope.commands",
    "scope.endpoints",
    "scope.data_access",
    "scope.network",
    "scope.filesystem",
    "status",
    "last_review",
    "next_review",
    "args_schema",
]


@pytest.mark.req("000-191")
@pytest.mark.parametrize("field", REGISTRY_FIELDS)
def test_an_incomplete_registry_entry_is_refused(repository: Any, field: str) -> None:
    import yaml

    path = repository.folder("ripgrep") / "tool.yaml"
    document = yaml.load(path.read_text(), yaml.BaseLoader)  # text only: `off` stays `off`
    holder = document
    *way, last = field.split(".")
    for step in way:
        holder = holder[step]
    del holder[last]
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(ContractInvalid) as invalid:
        load_tool(repository.folder("ripgrep"))
    missing = [p.field for p in invalid.value.problems if "missing" in p.message]
    assert missing == [field]


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        pytest.param(old, new, field, marks=_proves(rows), id=f"{field}-{new[:25]!r}")
        for old, new, field, rows in [
            ('version: "1.1.0"', 'version: "1"', "version", []),
            ("owner: platform", 'owner: " "', "owner", ["000-191"]),
            ("status: active", "status: retired", "status", ["000-191"]),
            ("data_access: read", "data_access: all", "scope.data_access", ["000-191"]),
            ("network: off", "network: false", "scope.network", ["000-191"]),
            ("network: off", "network: maybe", "scope.network", ["000-191"]),
            ("hosts: []", "hosts: [example.com]", "scope.hosts", []),
            ("outbound: false", "outbound: [https]", "permissions.network.outbound", []),
            ("outbound: false", "outbound: true", "permissions.network.outbound", []),
            ("outbound: false", "outbound: [smtp]", "permissions.network.outbound", []),
            ("write: []", 'write: ["."]', "permissions.filesystem.write", []),
            ('read: ["."]', "read: [../up]", "permissions.filesystem.read[0]", []),
            ('filesystem: ["."]', "filesystem: [a/../../b]", "scope.filesystem[0]", []),
            ("    - rg\n", "    - 'git  status'\n", "scope.commands[0]", []),
            ("runner: local", "runner: none", "permissions.execution.runner", []),
            ("max_memory_mb: 1024", "max_memory_mb: 1", "permissions.execution.max_memory_mb", []),
            ("[LANG,", "[LD_PRELOAD,", "environment[0]", []),
            ("[LANG,", "[PATH,", "environment[0]", []),
            ("[LANG,", "['A B',", "environment[0]", []),
            ('last_review: "2026-11-15"', 'last_review: "2026-13-15"', "last_review", []),
            ('next_review: "2027-05-15"', 'next_review: "2026-05-15"', "next_review", []),
            ("name: ripgrep", "name: grep", "name", []),
            ("x-actum: literal", "x-actum: anything", "args_schema.properties.pattern.x-actum", []),
            ("type: boolean", "type: bool", "args_schema", []),
            ("  required: [pattern, path]", '  "$ref": "https://example.com/s"', "args_schema", []),
            ("status: active", "status: active\napproval: yes", "approval", []),
        ]
    ],
)
def test_a_malformed_tool_is_refused_by_field_and_place(
    repository: Any, edit: Edit, old: str, new: str, field: str
) -> None:
    edit(TOOL, old, new)
    rejected(repository, field)


def test_a_tool_without_a_runner_means_docker(repository: Any, edit: Edit) -> None:
    edit(TOOL, "    runner: local\n", "")
    assert load_tool(repository.folder("ripgrep")).permissions.runner is RunnerKind.DOCKER


def test_a_tool_without_permissions_gets_no_network_and_docker(repository: Any) -> None:
    path = repository.folder("ripgrep") / "tool.yaml"
    before, rest = path.read_text().split("permissions:\n")
    path.write_text(before + rest[rest.index("environment:") :])
    permissions = load_tool(repository.folder("ripgrep")).permissions
    assert (permissions.outbound, permissions.secrets) == ((), ())
    assert permissions.runner is RunnerKind.DOCKER


def test_the_problems_of_all_files_are_told_at_once_with_their_places(
    repository: Any, edit: Edit
) -> None:
    edit(TOOL, "owner: platform\n", "")
    edit(TOOL, "data_access: read", "data_access: all")
    edit(ADP_001, "type: cli", "type: grpc")
    edit(ADP_001, "memory_mb: 256", "memory_mb: 1")
    with pytest.raises(ContractInvalid) as invalid:
        load_tool(repository.folder("ripgrep"))
    found = {(Path(p.file).name, p.field, p.line > 0) for p in invalid.value.problems}
    assert found == {
        ("tool.yaml", "owner", True),
        ("tool.yaml", "scope.data_access", True),
        ("ripgrep-search.yaml", "type", True),
        ("ripgrep-search.yaml", "sandbox_override.memory_mb", True),
    }


def test_unreadable_yaml_is_a_problem_like_any_other(repository: Any) -> None:
    (repository.folder("ripgrep") / "tool.yaml").write_text("tool_id: TL-003\ntool_id: TL-004\n")
    (repository.folder("ripgrep") / "adapters" / "broken.yaml").write_text("a: [")
    with pytest.raises(ContractInvalid) as invalid:
        load_tool(repository.folder("ripgrep"))
    assert {Path(p.file).name for p in invalid.value.problems} == {"tool.yaml", "broken.yaml"}


def test_a_folder_without_a_tool_yaml_is_refused(repository: Any) -> None:
    (repository.folder("ripgrep") / "tool.yaml").unlink()
    with pytest.raises(ContractInvalid, match="actum new tool"):
        load_tool(repository.folder("ripgrep"))


@pytest.mark.req("000-105", "000-106")
@pytest.mark.parametrize(
    ("language", "place", "wrong"),
    [
        ("python", "package", "../up"),
        ("python", "import_path", "os;x"),
        ("python", "function_mapping.add", "add()"),
        ("node", "package", "Upper/x/y"),
        ("node", "import_path", "./../../x.js"),
        ("node", "function_mapping.add", "a-b"),
        ("go", "package", 'x"'),
        ("go", "import_path", 'x"; import "os'),
        ("go", "function_mapping.add", "notExported"),
        ("rust", "package", "a-b"),
        ("rust", "import_path", "a.b"),
        ("rust", "function_mapping.add", "f(); evil"),
    ],
)
def test_a_name_that_is_none_of_the_language_is_refused_when_it_is_loaded(
    repository: Any, edit: Edit, language: str, place: str, wrong: str
) -> None:
    right = {
        "python": ("example", "example.api", "Client.add"),
        "node": ("@scope/example", "@scope/example/api.mjs", "client.add"),
        "go": ("example.org/example", "example.org/example/api", "Add"),
        "rust": ("example", "example::api", "add"),
    }[language]
    names = dict(zip(("package", "import_path", "function_mapping.add"), right, strict=True))
    block = "  sdk:\n    language: {}\n    package: {}\n    import_path: {}\n"
    block += "    function_mapping:\n      add: {}\n"

    def written(values: dict[str, str]) -> str:
        return "interface:\n" + block.format(language, *map(json.dumps, values.values()))

    edit(ADP_001, "interface:\n", written(names))
    edit(ADP_001, "type: cli", "type: sdk")
    folder = repository.folder("ripgrep")
    text = (folder / "adapters/ripgrep-search.yaml").read_text()
    rest = text.partition("transforms:")[2]
    assert rest
    edit(ADP_001, "transforms:" + rest.split("errors:")[0], "")
    (adapter,) = load_adapters(folder)  # control: the right names are fine
    assert adapter.interface["package"] == names["package"]
    edit(ADP_001, written(names), written({**names, place: wrong}))
    assert [problem.field for problem in repository.problems("ripgrep")] == [
        f"interface.sdk.{place}"
    ]


def test_an_image_is_named_by_content_and_a_tag_is_refused(repository: Any, edit: Edit) -> None:
    assert load_tool(repository.folder("ripgrep")).image == "host"
    digest = "sha256:" + "0" * 64
    edit(TOOL, "tool_id: TL-003", f"tool_id: TL-003\nimage: debian@{digest}")
    assert load_tool(repository.folder("ripgrep")).image == f"debian@{digest}"
    edit(TOOL, f"debian@{digest}", "debian:bookworm")
    with pytest.raises(ContractInvalid) as refused:
        load_tool(repository.folder("ripgrep"))
    (problem,) = refused.value.problems
    assert problem.field == "image"
    assert "a tag can be moved" in problem.message
