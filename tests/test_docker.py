"""The container of the server: what its files name exists."""

import json
import re
import tomllib
from pathlib import Path

import yaml
from programs import REPOSITORY

from vanilla_transformer.commands.program import parse

DOCKER = REPOSITORY / "scripts" / "docker"
DOCKERFILE = DOCKER / "Dockerfile"
COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))
NGINX = (DOCKER / "nginx.conf").read_text(encoding="utf-8")
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def instructions():
    """(name, arguments) of each instruction of the Dockerfile."""
    text = DOCKERFILE.read_text(encoding="utf-8")
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line]
    return [(line.partition(" ")[0], line.partition(" ")[2].strip()) for line in lines]


def arguments_of(name):
    return [arguments for found, arguments in instructions() if found == name]


def serve_command(words):
    """Parses the words after the entry point as the server does."""
    program, subcommand, *options = json.loads(arguments_of("ENTRYPOINT")[0])
    assert program in PROJECT["scripts"]
    assert subcommand == "serve"
    return parse("serve", [*options, *words])


def test_the_server_is_the_entry_point_of_a_user_who_is_not_root():
    options = serve_command(json.loads(arguments_of("CMD")[-1]))
    assert options.address.host == "0.0.0.0"
    assert str(options.address.port) in arguments_of("EXPOSE")
    volumes = json.loads(arguments_of("VOLUME")[0])
    assert all(str(Path(model.path).parent) in volumes for model in options.models)
    names = [name for name, _ in instructions()]
    assert int(arguments_of("USER")[-1]) > 0
    assert names.index("USER") > max(i for i, name in enumerate(names) if name == "RUN")


def test_compose_starts_the_server_behind_a_proxy():
    server, proxy = COMPOSE["services"]["translator"], COMPOSE["services"]["proxy"]
    build = server["build"]
    assert (DOCKER / build["context"]).resolve() == REPOSITORY
    assert REPOSITORY / build["dockerfile"] == DOCKERFILE
    words = [re.sub(r"\$\{\w+:-(.*?)\}", r"\1", word) for word in server["command"]]
    options = serve_command(words)
    mounted = [volume.rsplit(":", 2) for volume in server["volumes"] if volume.endswith(":ro")]
    paths = [model.path for model in options.models]
    assert paths == [where for _, where, _ in mounted]
    assert options.clients.trust_proxy == [proxy["networks"]["inside"]["ipv4_address"]]
    assert "ports" not in server  # only the proxy can be reached from outside
    assert proxy["depends_on"]["translator"]["condition"] == "service_healthy"
    assert arguments_of("HEALTHCHECK")
    configuration = proxy["volumes"][0].split(":")[0]
    assert (DOCKER / configuration).is_file()
    assert f"proxy_pass http://translator:{options.address.port};" in NGINX
