"""Files of a repository on the hub: from the cache, else downloaded; what goes wrong is one line with the way out.

The cache is asked first, so what was loaded once needs no network. Then a single request tells whether the
repository can be had and holds what is needed: a download by itself would try a dead address for half a minute.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

from huggingface_hub import HfApi, constants, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

SECONDS = 10.0  # to wait for the hub's first answer


def fetch(
    hub_id: str,
    revision: str | None,
    *,
    files: Sequence[str],
    needs: Sequence[str],
    instead: str,
    ignore: Sequence[str] = (),
    kind: str = "model",
) -> Path:
    """Return the folder in the hub's cache with a repository's files, downloaded where they are not there yet.

    Args:
        hub_id: repository, such as ``"org/model"``.
        revision: commit or ref; None is ``main``.
        files: patterns of the files to download, such as ``"*.json"``; ``*`` also matches ``/``.
        needs: patterns that each have to match a file, else nothing is downloaded; ``"a|b"`` is either.
        instead: the sentence that ends every message: what to do without the hub.
        ignore: patterns of files that count for neither.
        kind: ``"model"`` or ``"dataset"``.

    Raises:
        ConnectionError: the hub did not give the files; the message is one line.
        ValueError: the repository has no file that fits a pattern in ``needs``.
    """
    get = functools.partial(
        snapshot_download, hub_id, revision=revision, repo_type=kind, allow_patterns=list(files),
        ignore_patterns=list(ignore),
    )  # fmt: skip
    with _in_one_line(hub_id, revision, instead, kind):
        with contextlib.suppress(LocalEntryNotFoundError):
            folder = Path(get(local_files_only=True))
            if not _unmet(needs, _names(folder), ignore):
                return folder
        info = _ask(hub_id, revision, kind)
    names = [file.rfilename for file in info.siblings or []]
    if unmet := _unmet(needs, names, ignore):
        has = ", ".join(sorted(names)[:8]) + (", ..." if len(names) > 8 else "")
        raise ValueError(
            f"{hub_id} at revision {revision or 'main'} has no {', no '.join(unmet)} (it has {has or 'no files'}): "
            f"give a revision that has. {instead}"
        )
    with _in_one_line(hub_id, revision, instead, kind):
        folder = Path(get())
        _remove_damaged(folder)
    return folder


def look_up(hub_id: str, revision: str | None, *, instead: str, kind: str = "model"):
    """Return what the hub states of a repository: ``sha``, its commit; ``siblings``, its files with their hashes.

    Raises:
        ConnectionError: the hub did not tell; the message is one line.
    """
    with _in_one_line(hub_id, revision, instead, kind):
        return _ask(hub_id, revision, kind, files_metadata=True)


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _ask(hub_id: str, revision: str | None, kind: str, **options):
    return HfApi().repo_info(hub_id, revision=revision, repo_type=kind, timeout=SECONDS, **options)


def _names(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]


def _unmet(needs: Iterable[str], names: Iterable[str], ignore: Iterable[str]) -> list[str]:
    """What is lacking: the patterns that no name fits."""
    counted = [name for name in names if not any(fnmatch(name, pattern) for pattern in ignore)]
    return [
        pattern.replace("|", " or ")
        for pattern in needs
        if not any(fnmatch(name, one) for name in counted for one in pattern.split("|"))
    ]


def _remove_damaged(folder: Path) -> None:
    """Compare large files with the hash that the hub gave for them: in its cache it is their name."""
    for path in folder.rglob("*"):
        blob = path.resolve()
        if re.fullmatch("[0-9a-f]{64}", blob.name) and (found := file_sha256(blob)) != blob.name:
            path.unlink()
            blob.unlink()
            raise OSError(
                f"{path.name} came damaged: its SHA-256 is {found}, the hub states {blob.name}; the file was removed, "
                "so try again"
            )


@contextlib.contextmanager
def _in_one_line(hub_id: str, revision: str | None, instead: str, kind: str) -> Iterator[None]:
    try:
        yield
    except (OSError, HTTPError, ValueError) as error:
        reason = " ".join(_reason(error, hub_id, kind).split())
        raise ConnectionError(
            f"The hub did not give {hub_id} at revision {revision or 'main'} ({reason}). {instead}"
        ) from error


def _reason(error: BaseException, hub_id: str, kind: str) -> str:
    if isinstance(error, LocalEntryNotFoundError) and error.__cause__ is not None:
        error = error.__cause__  # "not in the cache either" would hide why the hub did not give it
    address = constants.ENDPOINT
    if isinstance(error, GatedRepoError):
        page = f"{address}/{'datasets/' if kind == 'dataset' else ''}{hub_id}"
        return f"it is gated: accept its terms at {page}, then type 'hf auth login'"
    if isinstance(error, RepositoryNotFoundError):
        return "there is no such repository, or it is private: check the name, or type 'hf auth login'"
    if isinstance(error, RevisionNotFoundError):
        return "it has no such revision"
    if isinstance(error, OfflineModeIsEnabled):
        return "it is not in the cache, and HF_HUB_OFFLINE forbids to ask the hub"
    if isinstance(error, HfHubHTTPError):
        return f"{address} answered with status {error.response.status_code} {error.server_message or ''}"
    if isinstance(error, HTTPError):
        return f"{address} cannot be reached, or broke off: {error}"
    return str(error).strip().split("\n")[0] or type(error).__name__
