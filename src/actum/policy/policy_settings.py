"""Policy inputs from the project and the current situation, beside contract and registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from actum.contract.package_registries import Registries
from actum.value import field, value


@value
class PolicySettings:
    repo_root: str
    home: str  #: the `.actum` directory: never visible inside
    dependencies: tuple[str, ...] = ()  #: directories that level extended may also read
    interpreters: tuple[str, ...] = ()  #: approved folders whose programs a tool may execute
    #: Of level registry; read when a call needs them.
    registries: Callable[[], Registries] = Registries
    api_hosts: tuple[str, ...] = ()  #: project-wide bound of level api; empty for the tool's own
    #: "host:port" -> "address:port": private names, and so the internal ones among them
    resolve: Mapping[str, str] = field(default_factory=dict)
    own_authorities: bool = False  #: tools with network trust /run/ca.pem beside the system's
    #: Changes to writable folders are isolated, and committed by the host when the tool has ended.
    transactions: bool = False
    #: Files and folders that the host executes when it runs Actum, as resolved paths.
    own_code: tuple[str, ...] = ()
    #: Whatever tool and request declare: in a work item's own view.
    always_direct: bool = False
    time_left_ms: int | None = None  #: of the work that encloses this execution
