"""obstore is used by one module, and loaded when a store is opened."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import actum
from actum.errors import Refused
from actum.runs.transport.object_store import ObjectStore, StoreAddress

SOURCE = Path(actum.__file__).parent


def _imports(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def test_one_module_imports_obstore() -> None:
    naming = [file for file in SOURCE.rglob("*.py") if "obstore" in file.read_text()]
    found = [file for file in naming if "obstore" in _imports(file)]
    assert [str(file.relative_to(SOURCE)) for file in found] == ["runs/transport/object_store.py"]


def test_it_is_loaded_when_a_store_is_opened(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from actum.doors.cli import snapshot_command\n"
        "from actum.runs.transport import snapshots, object_expiry, applying\n"
        "from actum.runs.transport.object_store import ObjectStore, StoreAddress\n"
        "assert 'obstore' not in sys.modules\n"
        f"ObjectStore(StoreAddress(url='file://{tmp_path}'))\n"
        "assert 'obstore' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_without_it_the_refusal_names_the_extra(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "sys.modules['obstore'] = None\n"
        "from actum.errors import Refused\n"
        "from actum.runs.transport.object_store import ObjectStore, StoreAddress\n"
        "try:\n"
        f"    ObjectStore(StoreAddress(url='file://{tmp_path}'))\n"
        "except Refused as refused:\n"
        "    print(refused.code, refused)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout.startswith("FLEET_NOT_INSTALLED ")
    assert "actum[fleet]" in done.stdout


_KEYS = {"key_id": "id", "key": "secret"}


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "neither"),
        ("/folder", "neither"),
        ("http://host/bucket", "neither"),
        ("file://host/folder", "absolute path"),
        ("file:///a/../b", "shortest form"),
        ("file:///a?b", "no query"),
        ("s3://ab/x", "no valid name"),
        ("s3://UPPER/x", "no valid name"),
        ("s3://user:word@bucket/x", "no user"),
        ("s3://bucket/a/../b", "characters"),
        ("s3://bucket/a b", "characters"),
        ("s3://[bucket", "Invalid"),
    ],
)
def test_an_address_is_read_strictly(url: str, why: str) -> None:
    with pytest.raises(Refused, match=why) as refused:
        ObjectStore(StoreAddress(url=url, **_KEYS))
    assert refused.value.code == "OBJECT_STORE_INVALID"


def test_a_bucket_needs_credentials_and_takes_none_from_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "other")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "other")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "other")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(Refused, match="access key"):
        ObjectStore(StoreAddress(url="s3://bucket/prefix"))
    objects = ObjectStore(StoreAddress(url="s3://bucket/prefix", **_KEYS))
    config = objects._store.config  # type: ignore[union-attr]  # a bucket's
    assert config == {
        "bucket": "bucket",
        "access_key_id": "id",
        "secret_access_key": "secret",
        "endpoint": "https://s3.us-east-1.amazonaws.com",
        "region": "us-east-1",
    }


def test_credentials_are_not_printed() -> None:
    assert "secret" not in repr(StoreAddress(url="s3://bucket/prefix", **_KEYS))
