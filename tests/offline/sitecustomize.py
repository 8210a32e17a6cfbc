"""No network for any Python started with this folder on PYTHONPATH: only this machine itself can be reached.

    PYTHONPATH=tests/offline make test        the whole suite, its kernels and its child processes
    PYTHONPATH=tests/offline make run

What is refused is an OSError, so that programs take it for a network that is not there, and a line in the file
ATTATTR_REFUSED, where one is named: an attempt that a library swallows is seen all the same. With ATTATTR_WRITES the
files that are written, made or removed are listed as well. Python tells of both by itself (sys.addaudithook), also
where a module keeps its own reference to ``socket``; no library in use here reaches out past Python but the hub's
downloader, which is off with HF_HUB_OFFLINE.
"""

import ipaddress
import os
import socket
import sys

_CONNECTS = {"socket.connect", "socket.sendto", "socket.sendmsg"}
_NAMES = {"socket.getaddrinfo", "socket.gethostbyname"}
_CHANGES = {
    "os.mkdir": 0,
    "os.remove": 0,
    "os.rmdir": 0,
    "os.rename": 1,
    "os.symlink": 1,
    "os.link": 1,
    "os.truncate": 0,
}


def _here(host) -> bool:
    """True for this machine: a loopback address, its own name, or none."""
    if host in (None, "", b"", "localhost", b"localhost"):
        return True
    name = host.decode(errors="replace") if isinstance(host, bytes) else str(host)
    try:
        return ipaddress.ip_address(name.partition("%")[0]).is_loopback or name in ("0.0.0.0", "::")
    except ValueError:
        return name == socket.gethostname()


def _note(variable: str, line: str) -> None:
    """Append a line to the file that an environment variable names, without being audited for it."""
    path = os.environ.get(variable)
    if path and not _State.busy:
        _State.busy = True
        try:
            with open(path, "a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(line + "\n")
        finally:
            _State.busy = False


class _State:
    busy = False


def _refuse(what: str) -> None:
    _note("ATTATTR_REFUSED", f"{os.getpid()} {' '.join(sys.argv[:3])}: {what}")
    raise ConnectionRefusedError(f"no network in this run: {what} was refused")


def _watch(event: str, arguments: tuple) -> None:
    if event in _CONNECTS:
        address = arguments[1]
        if isinstance(address, tuple) and address and not _here(address[0]):  # a unix socket's address is a path
            _refuse(f"{event} {address[0]}")
    elif event in _NAMES:
        if not _here(arguments[0]):
            _refuse(f"{event} {arguments[0]}")
    elif "ATTATTR_WRITES" in os.environ and not _State.busy:
        if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            if (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                _note("ATTATTR_WRITES", os.path.abspath(os.fsdecode(arguments[0])))
        elif event in _CHANGES and isinstance(arguments[_CHANGES[event]], str | bytes | os.PathLike):
            path = os.path.abspath(os.fsdecode(arguments[_CHANGES[event]]))
            if event != "os.mkdir" or not os.path.isdir(path):  # many make a folder that is there, to be sure
                _note("ATTATTR_WRITES", path)
        elif event == "sqlite3.connect" and arguments[0] not in ("", ":memory:"):
            _note("ATTATTR_WRITES", os.path.abspath(os.fsdecode(arguments[0])))


sys.addaudithook(_watch)
