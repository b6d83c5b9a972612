"""What one read touches, takes and starts: files that are opened, written or deleted, programs, hosts, memory, time.

Python's own audit events tell of calls in Python. Native libraries (the store's, Arrow's) raise none, so the kernel is
asked as well, which tells of whatever happens to the files that lie outside of the table; and the addresses that stores
are opened for are noted.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spark_apps.storage.store import Store

_NEVER = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "subprocess.Popen",
          "pty.spawn", "socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.bind", "socket.sendto",
          "urllib.Request", "ftplib.connect", "http.client.connect", "ctypes.dlopen", "pickle.find_class",
          "code.__new__", "marshal.loads")  # fmt: skip
_FILES = {"open": 1, "os.remove": 1, "os.rename": 2, "os.rmdir": 1, "os.mkdir": 1, "os.link": 2, "os.symlink": 2,
          "os.truncate": 1, "os.chmod": 1, "os.chown": 1, "os.utime": 1, "os.listdir": 1, "os.scandir": 1,
          "shutil.rmtree": 1, "shutil.move": 2, "shutil.copyfile": 2, "os.mkfifo": 1}  # fmt: skip
# What Python itself reads of its installation, when a module is imported for the first time or a zone is asked for.
_INSTALLED = tuple({sys.prefix, sys.base_prefix, *(str(Path(place).resolve()) for place in sys.path if place),
                    str(Path(__file__).parents[2]), "/usr/share/zoneinfo", "/usr/lib", "/proc/self", "/dev/null",
                    "/sys/fs/cgroup"})  # fmt: skip

PLANTED = "tests.hostile.planted"
"""A module of which a log may say the name, and that nobody imports."""

_OPEN, _ACCESS = 0x20, 0x1
_CHANGES = 0x2 | 0x4 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
"""Of inotify: content, attributes, moved from and to, made, deleted, the folder itself."""
_ONLY_FOLDERS = 0x01000000


class Watch:
    """Notes what happens while it is on.

    :param inside: the folder that may be read and written. :param outside: folders beside it, that may not.
    """

    _now: Watch | None = None
    _hooked = False

    def __init__(self, inside: Path, outside: list[Path]) -> None:
        self.inside = str(inside.resolve())
        self.seen: list[str] = []
        self.seconds = 0.0
        self.kilobytes = 0
        self._kernel = _Inotify(outside, _OPEN | _ACCESS | _CHANGES)
        self._own = _Inotify([inside], _CHANGES)
        if not Watch._hooked:
            Watch._hooked = True
            sys.addaudithook(_audit)
            _note_stores()

    def close(self) -> None:
        self._kernel.close()
        self._own.close()

    def has_changed(self) -> bool:
        """Whether anything inside was written, made or deleted since this was asked last."""
        return bool(self._own.events())

    @contextmanager
    def on(self) -> Iterator[None]:
        """Notes what is done inside; :attr:`seen` are the things that must not be."""
        self.seen = []
        self._kernel.events()
        gc.collect(0)
        before = _reset_peak()
        began = time.process_time()
        Watch._now = self
        try:
            yield
        finally:
            Watch._now = None
            self.seconds = time.process_time() - began
            if PLANTED in sys.modules:
                del sys.modules[PLANTED]
                self.seen.append(f"the module {PLANTED}")
            self.kilobytes = _peak() - before
            self.seen += self._kernel.events()

    def note(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Looks at an audit event."""
        if event in _NEVER:
            if event in ("ctypes.dlopen", "code.__new__", "marshal.loads", "pickle.find_class") and _importing():
                return
            self.seen.append(f"{event} {arguments!r:.200}")
        elif event in _FILES:
            for path in arguments[: _FILES[event]]:
                if not isinstance(path, str | bytes | os.PathLike):
                    continue
                place = os.path.realpath(os.fsdecode(path))
                if place == self.inside or place.startswith(f"{self.inside}/"):
                    continue
                reads = event in ("os.listdir", "os.scandir") or (event == "open" and _only_reads(arguments))
                if not (
                    reads
                    and (place.startswith((*_INSTALLED, *filter(None, sys.path))) or self.inside.startswith(place))
                ):
                    self.seen.append(f"{event} {place}")


def _only_reads(arguments: tuple[Any, ...]) -> bool:
    mode, flags = arguments[1], arguments[2]
    if isinstance(mode, str):
        return not set(mode) & set("wax+")
    return not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)


def _importing() -> bool:
    """Whether a module is imported right now, which is looked at as such."""
    frame = sys._getframe()
    while frame is not None:
        if "importlib" in frame.f_code.co_filename:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    watch = Watch._now
    if watch is None:
        return
    if event in _NEVER or event in _FILES:
        Watch._now = None  # what is done to look is not looked at
        try:
            watch.note(event, arguments)
        finally:
            Watch._now = watch


def _note_stores() -> None:
    """Addresses of stores are looked at when one is opened: the library connects where no event tells of it."""
    opened = Store._open

    def noted(self: Store) -> Any:
        watch = Watch._now
        if watch is not None and self._inner is None:
            place = os.path.realpath(self.uri) if self._local is not None else self.uri
            if not f"{place}/".startswith(f"{watch.inside}/") and not f"{watch.inside}/".startswith(f"{place}/"):
                watch.seen.append(f"a store at {self.uri}")
        return opened(self)

    Store._open = noted  # type: ignore[method-assign]


class _Inotify:
    """Tells of whatever is done to the files of some folders, and to what lies right in them, by whomever."""

    def __init__(self, folders: list[Path], mask: int) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._handle = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._handle < 0:
            raise OSError(ctypes.get_errno(), "inotify")
        self._names: dict[int, str] = {}
        for folder in folders:
            for path in [folder, *folder.rglob("*")]:
                if path.is_dir():
                    number = self._libc.inotify_add_watch(self._handle, os.fsencode(path), mask | _ONLY_FOLDERS)
                    if number < 0:
                        raise OSError(ctypes.get_errno(), f"inotify of {path}")
                    self._names[number] = str(path)

    def events(self) -> list[str]:
        """What has happened since it was asked last; looking into a folder is not reported, its files are."""
        events_since = []
        while True:
            try:
                data = os.read(self._handle, 1 << 16)
            except BlockingIOError:
                return sorted(set(events_since))
            at = 0
            while at < len(data):
                number, mask, _, length = struct.unpack_from("iIII", data, at)
                name = data[at + 16 : at + 16 + length].rstrip(b"\0").decode(errors="replace")
                at += 16 + length
                if mask & 0x40000000 and not mask & _CHANGES:
                    continue
                what = "opened" if mask & (_OPEN | _ACCESS) else "changed"
                events_since.append(f"{what} {self._names.get(number, '?')}/{name}")

    def close(self) -> None:
        os.close(self._handle)


def _status(name: str) -> int:
    with open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith(name):
                return int(line.split()[1])
    raise OSError(name)


def _reset_peak() -> int:
    """Makes the kernel forget the highest memory of this process; returns what it has now, in kilobytes."""
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # then only what goes above the highest is seen
    return _status("VmRSS")


def _peak() -> int:
    return _status("VmHWM")
