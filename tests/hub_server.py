"""A small Hub on loopback: the part of its HTTP API that models and data sets need.

Files that git would keep in LFS go through the LFS batch API; Xet is not offered. It keeps all in
memory and shows it: `hub.files("user/name")` are the files of the last commit.
"""

import base64
import fnmatch
import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import yaml
from toy import REPOSITORY

USER, TOKEN = "somebody", "hf_of_the_test"
LFS_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".pkl")


def git_oid(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class RefusalError(Exception):
    """An answer that is an error: status, code of the Hub, text."""


class Hub:
    """Repositories as lists of commits (sha, message, {path: content}), and the LFS store."""

    def __init__(self):
        self.repositories, self.objects, self.requests = {}, {}, []
        self.faults = []  # (beginning of a request, "cut" or a status), each for one request
        self.lock = threading.Lock()
        handler = type("Handler", (Handler,), {"hub": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def environment(self, home):
        """What a process needs in its environment to use this Hub and no other."""
        return {
            "HF_ENDPOINT": self.url,
            "HF_TOKEN": TOKEN,
            "HF_HOME": str(home),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }

    def commits(self, name):
        if name not in self.repositories:
            raise RefusalError(404, "RepoNotFound", f"there is no {name}")
        return self.repositories[name]

    def commit(self, name, revision="main"):
        commits = self.commits(name)
        for commit in reversed(commits):
            if revision in ("main", commit[0]):
                return commit
        raise RefusalError(404, "RevisionNotFound", f"{name} has no {revision}")

    def files(self, name):
        return self.commit(name)[2]

    def all_files_ever(self, name):
        return {path for _, _, files in self.commits(name) for path in files}

    def fault_of(self, request):
        """What goes wrong with a request, once for each entry of `faults`; None: nothing."""
        with self.lock:
            for index, (beginning, fault) in enumerate(self.faults):
                if request.startswith(beginning):
                    del self.faults[index]
                    return fault
        return None

    # --- what is asked over HTTP

    def create(self, body):
        name = f"{body.get('organization') or USER}/{body['name']}"
        answer = {"url": f"{self.url}/{name}", "name": name, "id": name}
        if name in self.repositories:
            return 409, {**answer, "error": "You already created this model repo"}
        attributes = b"*.safetensors filter=lfs\n*.bin filter=lfs\n"
        files = {".gitattributes": attributes}
        self.repositories[name] = [(git_oid(name.encode()), "initial commit", files)]
        return 200, answer

    def preupload(self, name, revision, body):
        present = self.commit(name, revision)[2]
        rules = body.get("gitIgnore")
        if rules is None:
            rules = present.get(".gitignore", b"").decode()
        rules = [rule for rule in rules.splitlines() if rule and not rule.startswith("#")]
        answers = []
        for file in body["files"]:
            path = file["path"]
            parts = (path, *path.split("/"))
            answer = {"path": path, "uploadMode": "regular"}
            if path.endswith(LFS_SUFFIXES):
                answer["uploadMode"] = "lfs"
            answer["shouldIgnore"] = any(
                fnmatch.fnmatch(part, rule.rstrip("/")) for rule in rules for part in parts
            )
            if path in present and answer["uploadMode"] == "regular":
                answer["oid"] = git_oid(present[path])
            answers.append(answer)
        return 200, {"files": answers}

    def batch(self, body):
        objects = []
        for entry in body["objects"]:
            found = {"oid": entry["oid"], "size": entry["size"]}
            if entry["oid"] not in self.objects:
                found["actions"] = {
                    "upload": {"href": f"{self.url}/lfs/{entry['oid']}"},
                    "verify": {"href": f"{self.url}/lfs/{entry['oid']}/verify"},
                }
            objects.append(found)
        return 200, {"transfer": "basic", "objects": objects}

    def store(self, oid, content):
        if hashlib.sha256(content).hexdigest() != oid:
            raise RefusalError(400, "BadObject", "the content has another sha256")
        self.objects[oid] = content
        return 200, {}

    def write(self, name, revision, lines):
        if not revision == "main":
            raise RefusalError(404, "RevisionNotFound", f"{name} has no branch {revision}")
        files, message = dict(self.files(name)), ""
        for line in lines:
            key, value = line["key"], line["value"]
            if key == "header":
                message = value["summary"]
            elif key == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif key == "lfsFile":
                files[value["path"]] = self.objects[value["oid"]]
            elif key == "deletedFile":
                del files[value["path"]]
            else:
                raise RefusalError(400, "BadCommit", f"unknown operation {key}")
        history = self.repositories[name]
        sha = git_oid(f"{history[-1][0]} {message} {len(history)}".encode())
        history.append((sha, message, files))
        url = f"{self.url}/{name}/commit/{sha}"
        return 200, {"success": True, "commitOid": sha, "commitUrl": url}

    def info(self, name, revision):
        sha, _, files = self.commit(name, revision)
        card = files.get("README.md", b"").decode()
        data = yaml.safe_load(card.split("---")[1]) if card.startswith("---") else None
        return 200, {
            "_id": sha,
            "id": name,
            "sha": sha,
            "private": False,
            "tags": [],
            "siblings": [{"rfilename": path} for path in files],
            "pipeline_tag": (data or {}).get("pipeline_tag"),
            "library_name": (data or {}).get("library_name"),
        }

    def tree(self, name, revision, folder, recursive):
        files = self.commit(name, revision)[2]
        start = f"{folder}/" if folder else ""
        inside = {path: content for path, content in files.items() if path.startswith(start)}
        if folder and not inside:
            raise RefusalError(404, "EntryNotFound", f"{folder} does not exist")
        entries = []
        for path, content in inside.items():
            if "/" in path[len(start) :] and not recursive:
                continue
            entries.append(
                {"type": "file", "path": path, "size": len(content), "oid": git_oid(content)}
            )
        return 200, entries


def run(hub, home, *command, package=True, fails=False):
    """Runs a program that sees this Hub alone; without `package` it cannot import the package.

    Returns what it prints, or its errors if it fails.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "PYTHON"))}
    if package:
        kept["PYTHONPATH"] = str(REPOSITORY)
    home.mkdir(exist_ok=True)
    isolated = [] if package else ["-I"]
    result = subprocess.run(
        [sys.executable, *isolated, *map(str, command)],
        env={**kept, **hub.environment(home), "OMP_NUM_THREADS": "1"},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (result.returncode != 0) is fails, result.stderr[-4000:]
    return result.stderr if fails else result.stdout


class Handler(BaseHTTPRequestHandler):
    """Takes requests apart and sends answers; the Hub does the rest."""

    hub: Hub
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def log_message(self, *args):
        pass

    def body(self):
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        content = b""
        while size := int(self.rfile.readline(), 16):
            content += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return content

    def answer(self):
        url = urlsplit(self.path)
        path = unquote(url.path).strip("/")
        fault = self.hub.fault_of(f"{self.command} {path}")
        if fault == "cut":  # in the middle of an upload: nothing of it is read
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        content = self.body()
        if fault is not None:
            self.send(fault, b"out of order")
            return
        with self.hub.lock:
            self.hub.requests.append(f"{self.command} {path}")
            try:
                self.route(path.split("/"), url.query, content)
            except RefusalError as refusal:
                status, code, text = refusal.args
                headers = {"X-Error-Code": code, "X-Error-Message": text}
                self.send(status, json.dumps({"error": text}).encode(), headers)

    do_GET = do_HEAD = do_POST = do_PUT = answer  # noqa: N815 - names of the standard library

    def send(self, status, content, headers=None):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def route(self, parts, query, content):
        if self.command in ("POST", "PUT") and parts[0] == "api":
            self.check_token()
        if len(parts) > 3 and parts[2] == "resolve":
            return self.resolve("/".join(parts[:2]), parts[3], "/".join(parts[4:]))
        status, found = self.find(parts, query, content)
        return self.send(status, json.dumps(found).encode(), {"Content-Type": "application/json"})

    def check_token(self):
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            raise RefusalError(401, "Unauthorized", "a token is needed to write")

    def find(self, parts, query, content):
        hub, name = self.hub, "/".join(parts[2:4])
        match self.command, parts:
            case "GET", ["api", "whoami-v2"]:
                return 200, {"type": "user", "name": USER, "orgs": [], "auth": {}}
            case "POST", ["api", "repos", "create"]:
                return hub.create(json.loads(content))
            case "POST", ["api", "validate-yaml"]:
                return 200, {"errors": [], "warnings": []}
            case "POST", ["api", "models", _, _, "preupload", revision]:
                return hub.preupload(name, revision, json.loads(content))
            case "POST", [_, _, "info", "lfs", "objects", "batch"]:
                return hub.batch(json.loads(content))
            case "PUT", ["lfs", oid]:
                return hub.store(oid, content)
            case "POST", ["lfs", oid, "verify"]:
                return (200, {}) if oid in hub.objects else (404, {})
            case "POST", ["api", "models", _, _, "commit", revision]:
                return hub.write(name, revision, map(json.loads, content.splitlines()))
            case "GET", ["api", "models", _, _]:
                return hub.info(name, "main")
            case "GET", ["api", "models", _, _, "revision", revision]:
                return hub.info(name, revision)
            case "GET", ["api", "models", _, _, "tree", revision, *folder]:
                recursive = "recursive=true" in query.lower()
                return hub.tree(name, revision, "/".join(folder), recursive)
        raise RefusalError(
            404, "Unknown", f"{self.command} {'/'.join(parts)}: not known to this Hub"
        )

    def resolve(self, name, revision, path):
        sha, _, files = self.hub.commit(name, revision)
        headers = {"X-Repo-Commit": sha}
        if path not in files:
            headers |= {"X-Error-Code": "EntryNotFound", "X-Error-Message": f"no {path}"}
            return self.send(404, b"", headers)
        content = files[path]
        large = path.endswith(LFS_SUFFIXES)
        oid = hashlib.sha256(content).hexdigest() if large else git_oid(content)
        return self.send(200, content, {**headers, "ETag": f'"{oid}"'})
