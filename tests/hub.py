"""A stand-in for the hub on this machine: the part of its protocol that the real clients ask for, and its failures."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import io
import json
import re
import threading
import urllib.parse
from dataclasses import dataclass, field
from pathlib import PurePosixPath

import pyarrow as pa
import pyarrow.parquet as pq

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = (".safetensors", ".parquet", ".bin")  # kept in large-file storage: the hub knows their SHA-256


@dataclass
class Repository:
    """What is in a repository, and how the hub behaves when it is asked for it.

    Attributes:
        files: content by path.
        commit: of ``refs``.
        refs: names that lead to the commit.
        fault: "gated", "down" (nothing works), "busy" (files are not given), "cut" (large files break off in the
            middle), "damaged" (other bytes of the same length), or "" for none.
        faulty: how many downloads of large files the last two faults spoil, before all is well again.
        tags: what the hub notes, such as the licence.
    """

    files: dict[str, bytes]
    commit: str = COMMIT
    refs: tuple[str, ...] = ("main",)
    fault: str = ""
    faulty: int = 0
    tags: tuple[str, ...] = ()
    spoilt: int = field(default=0, init=False)

    def spoils(self) -> bool:
        """Whether this download of a large file is one of those to be spoilt."""
        self.spoilt += 1
        return self.fault in ("cut", "damaged") and self.spoilt <= self.faulty

    def about(self, path: str) -> dict:
        """A file as the hub lists it."""
        content = self.files[path]
        listed = {"path": path, "rfilename": path, "type": "file", "size": len(content), "oid": oid(content)}
        if path.endswith(LARGE):
            digest = hashlib.sha256(content).hexdigest()
            listed["lfs"] = {"oid": digest, "sha256": digest, "size": len(content), "pointerSize": 134}
        return listed | {"blobId": listed["oid"]}

    def tree(self, folder: str, deep: bool):
        """What is in a folder; with what is in its folders, if ``deep``."""
        inside = [path for path in self.files if not folder or path.startswith(f"{folder}/")]
        top = len(PurePosixPath(folder).parts) + 1
        for place in sorted({"/".join(PurePosixPath(path).parts[:top]) for path in inside} - set(inside)):
            yield {"path": place, "type": "directory", "oid": "0" * 40, "size": 0}
        for path in sorted(inside):
            if deep or len(PurePosixPath(path).parts) == top:
                yield self.about(path)


def oid(content: bytes) -> str:
    """The name that git gives to this content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Hub(http.server.ThreadingHTTPServer):
    """The stand-in; ``repositories`` by id, data sets as ``datasets/ID``; ``asked`` is what was requested, in order."""

    daemon_threads = True

    def __init__(self, repositories: dict[str, Repository]):
        super().__init__(("127.0.0.1", 0), Answer)
        self.repositories, self.asked = repositories, []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextlib.contextmanager
def serving(repositories: dict[str, Repository]):
    """The hub with these repositories, as long as the block runs."""
    with Hub(repositories) as hub:
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        try:
            yield hub
        finally:
            hub.shutdown()


class Answer(http.server.BaseHTTPRequestHandler):
    """One request: ``/api/models/ID[/revision/REF | /tree/REF[/PATH]]`` or ``/ID/resolve/REF/PATH``."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path, _, query = self.path.partition("?")
        self.server.asked.append(f"{self.command} {path}")
        if found := re.fullmatch(r"/api/(?:models/|(datasets/))([^/]+/[^/]+)(?:/(revision|tree)/([^/]+)/?(.*))?", path):
            self.api(*(urllib.parse.unquote(part or "") for part in found.groups()), query)
        elif found := re.fullmatch(r"/((?:datasets/)?[^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self.resolve(*map(urllib.parse.unquote, found.groups()))
        else:
            self.answer()  # a mark left by a test

    do_HEAD = do_GET  # noqa: N815 - the standard library's name

    def api(self, kind, name, what, ref, path, query):
        repository = self.repository(kind + name, ref or "main")
        if repository is None:
            return
        if what == "tree":
            deep = urllib.parse.parse_qs(query).get("recursive", ["False"])[0].lower() == "true"
            return self.answer(json.dumps(list(repository.tree(path, deep))).encode())
        siblings = [repository.about(file) for file in repository.files]
        info = {"id": name, "sha": repository.commit, "siblings": siblings, "tags": list(repository.tags)}
        self.answer(json.dumps(info).encode())

    def resolve(self, name, ref, path):
        repository = self.repository(name, ref)
        if repository is None:
            return
        if repository.fault == "gated":  # the hub tells of such a repository, and keeps its files
            return self.refuse(401, "GatedRepo", f"Access to model {name} is restricted.")
        if repository.fault == "busy":
            return self.refuse(503, None, "Too busy")
        if path not in repository.files:
            return self.refuse(404, "EntryNotFound", "Entry not found")
        content, large = repository.files[path], path.endswith(LARGE)
        etag = hashlib.sha256(content).hexdigest() if large else oid(content)
        headers = {"X-Repo-Commit": repository.commit, "ETag": f'"{etag}"', "Accept-Ranges": "bytes"}
        if large:
            headers |= {"X-Linked-Etag": f'"{etag}"', "X-Linked-Size": str(len(content))}
        spoilt = large and self.command == "GET" and repository.spoils()
        if spoilt and repository.fault == "damaged":
            content = content[:-4] + bytes(255 - byte for byte in content[-4:])
        self.send(content, headers, until=len(content) // 2 if spoilt and repository.fault == "cut" else None)

    def repository(self, name, ref):
        """The repository, or None where it, or its revision, is refused."""
        repository = self.server.repositories.get(name)
        if repository is None:
            self.refuse(401, "RepoNotFound", "Repository not found")  # to those who are not logged in, 401
        elif repository.fault == "down":
            self.refuse(500, None, "Internal Error")
        elif ref not in (repository.commit, *repository.refs):
            self.refuse(404, "RevisionNotFound", f"Invalid rev id: {ref}")
        else:
            return repository
        return None

    def send(self, content, headers, until):
        """The content, or the part from the byte asked for; only up to a byte, if the line is cut there."""
        start = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(start[1]) if start else 0
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self.answer(content[start:], 206 if start else 200, headers, until=None if until is None else until - start)

    def refuse(self, status, code, message):
        self.answer(b"", status, {"X-Error-Message": message} | ({"X-Error-Code": code} if code else {}))

    def answer(self, body=b"", status=200, headers=(), until=None):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **dict(headers)}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body if until is None else body[: max(until, 0)])
        if until is not None:
            self.close_connection = True

    def log_message(self, *args):
        pass


# ---- GLUE, a few rows of it

SST2, MNLI = ["negative", "positive"], ["entailment", "neutral", "contradiction"]
RTE = ["not_entailment", "entailment"]  # not GLUE's order: the names, not the numbers, must decide
GLUE = {  # (configuration, split) -> columns, label names
    ("sst2", "validation"): ({"sentence": ['a " loud film ', "warm"], "label": [0, 1]}, SST2),
    ("sst2", "test"): ({"sentence": ["who knows"], "label": [-1]}, SST2),
    ("mnli", "validation_matched"): ({"premise": ["a", "n/a"], "hypothesis": ["b", "c"], "label": [2, 0]}, MNLI),
    ("mnli", "validation_mismatched"): ({"premise": ["d"], "hypothesis": ["e"], "label": [1]}, MNLI),
    ("rte", "train"): ({"sentence1": ["f"], "sentence2": ["g"], "label": [0]}, RTE),
    ("rte", "validation"): ({"sentence1": ["f", "f"], "sentence2": ["g", " "], "label": [0, 1]}, RTE),
}  # fmt: skip


def glue_files(tables=None) -> dict[str, bytes]:
    """A data set's files as the hub has them: Parquet, and a card that says which file is what and names the labels."""
    tables = GLUE if tables is None else tables
    configs, infos, files = [], [], {}
    for config in dict.fromkeys(config for config, _ in tables):
        paths = []
        for (name, split), (columns, names) in tables.items():
            if name == config:
                labels = names
                buffer = io.BytesIO()
                pq.write_table(pa.table(columns), buffer)
                files[f"{config}/{split}-00000-of-00001.parquet"] = buffer.getvalue()
                paths.append({"split": split, "path": f"{config}/{split}-*"})
                texts = [{"name": column, "dtype": "string"} for column in columns if column != "label"]
        label = {"name": "label", "dtype": {"class_label": {"names": {str(i): n for i, n in enumerate(labels)}}}}
        configs.append({"config_name": config, "data_files": paths})
        infos.append({"config_name": config, "features": [*texts, label]})
    card = json.dumps({"configs": configs, "dataset_info": infos})  # JSON is YAML too
    return files | {"README.md": f"---\n{card}\n---\n".encode()}
