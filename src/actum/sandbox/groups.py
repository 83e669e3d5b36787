"""Control groups on the spawner's side: made by a recipe, held open, inherited by one member.

The version of the groups is the recipe's affair. What is made here is removed by the host, or
at its word by the member's init; by then it is empty, or its removal fails and that is on record.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from actum.sandbox.wire import Limits, Recipe

_FILE_BYTES = 4_096


class Group:
    """The open files of one sandbox's group, or groups."""

    def __init__(self, recipe: Recipe, folders: list[int], name: str) -> None:
        self.name = name
        self._recipe = recipe
        self._folders = folders  #: of this group, one per hierarchy
        self._open: dict[tuple[int, str], int] = {}
        for index, file, text in recipe["once"]:
            os.close(self._write(index, file, text))
        for index, file, _text in recipe["limits"]:
            self._keep(index, file, os.O_RDWR)
        for index, file in recipe["usage"]:
            self._keep(index, file, os.O_RDONLY)
        self.doors = [self._file(index, file, os.O_WRONLY) for index, file in recipe["doors"]]
        index, file = recipe["task_limit"]
        self.task_limit = self._open[index, file]
        self.oom = self._watch()

    def _file(self, index: int, name: str, flags: int) -> int:
        return os.open(name, flags | os.O_CLOEXEC, dir_fd=self._folders[index])

    def _write(self, index: int, name: str, text: str) -> int:
        file = self._file(index, name, os.O_WRONLY)
        os.write(file, text.encode())
        return file

    def _keep(self, index: int, name: str, flags: int) -> None:
        if (index, name) not in self._open:
            self._open[index, name] = self._file(index, name, flags)

    def _watch(self) -> int:
        """What becomes readable, or exceptional, when the group runs out of memory."""
        index, name = self._recipe["oom"]
        file = self._file(index, name, os.O_RDONLY)
        register = self._recipe["register"]
        if register is None:
            os.pread(file, _FILE_BYTES, 0)  # what is new is told relative to what was read last
            return file
        event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        os.close(self._write(*register, f"{event} {file}"))
        os.close(file)
        return event

    @property
    def born_inside(self) -> int:
        """The folder that the tool's process is cloned into, or -1."""
        return self._folders[0] if self._recipe["born_inside"] else -1

    def words(self, limits: Limits) -> list[str]:
        """What a member's init is told of its group: where each limit is written, and what; where
        its use is read; where the tool's process goes in; what it removes in the end. Each list
        begins with its length."""
        recipe = self._recipe
        words = [str(len(recipe["limits"]))]
        for index, file, text in recipe["limits"]:
            words += (str(self._open[index, file]), text.format_map(limits))
        words.append(str(len(recipe["usage"])))
        words += [str(self._open[place]) for place in recipe["usage"]]
        words.append(str(len(self.doors)))
        words += map(str, self.doors)
        words += (self.name, str(len(self._folders)))
        words += map(str, self._folders)
        return words

    def inherited(self) -> list[int]:
        """What a member's init holds of it."""
        return [*self._open.values(), *self.doors, *self._folders]

    def descriptors(self) -> list[int]:
        return [*self._open.values(), *self.doors, *self._folders, self.oom]

    def close(self) -> None:
        for descriptor in self.descriptors():
            os.close(descriptor)


class Groups:
    """Where groups are made."""

    def __init__(self, recipe: Recipe, parents: list[int]) -> None:
        # From JSON pairs arrive as lists.
        self._recipe: Recipe = {
            **recipe,
            "limits": [(index, file, text) for index, file, text in recipe["limits"]],
            "usage": [(index, file) for index, file in recipe["usage"]],
        }
        self._parents = parents

    def make(self, number: int) -> Group:
        name = f"{self._recipe['mark']}{number:09d}"
        folders: list[int] = []
        try:
            for parent in self._parents:
                os.mkdir(name, dir_fd=parent)
                folders.append(
                    os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=parent)
                )
            return Group(self._recipe, folders, name)
        except OSError:
            for parent, folder in zip(self._parents, folders, strict=False):
                os.close(folder)
                os.rmdir(name, dir_fd=parent)
            raise
