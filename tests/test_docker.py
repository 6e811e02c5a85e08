"""The container of the server: what its files name exists, and it builds where a builder is."""

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from toy import REPOSITORY, run_python

from vanilla_transformer.commands import serve
from vanilla_transformer.serving.settings import Limits

DOCKER = REPOSITORY / "scripts" / "docker"
DOCKERFILE = DOCKER / "Dockerfile"
COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))
NGINX = (DOCKER / "nginx.conf").read_text(encoding="utf-8")
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SCHEMA = "vendor.compose-spec"
BUILDERS = ("buildah", "podman", "docker")


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
    return serve.parse([*options, *words])


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


def test_the_limits_of_the_proxy_fit_those_of_the_server():
    limits = Limits()
    value = lambda name: int(re.search(rf"{name} (\d+)[ms];", NGINX)[1])  # noqa: E731
    assert value("client_max_body_size") * 2**20 >= limits.max_body
    assert value("client_header_timeout") == value("client_body_timeout") == limits.read_timeout
    assert value("proxy_read_timeout") > limits.timeout
    assert "limit_req zone=" in NGINX


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_nginx_takes_its_configuration(tmp_path):
    """The name of the server exists only in the network of compose.yaml."""
    (tmp_path / "site").write_text(NGINX.replace("//translator:", "//127.0.0.1:"))
    main = f"pid {tmp_path}/pid;\nevents {{}}\nhttp {{ include {tmp_path}/site; }}\n"
    (tmp_path / "main").write_text(main)
    command = ["nginx", "-t", "-c", tmp_path / "main", "-g", f"error_log {tmp_path}/log;"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_compose_has_the_fields_of_its_schema(tmp_path):
    bad = tmp_path / "compose.yaml"
    bad.write_text("services: {x: {imagine: y}}\n")
    for path, is_good in ((DOCKER / "compose.yaml", True), (bad, False)):
        done = run_python("-m", "check_jsonschema", "--builtin-schema", SCHEMA, path)
        assert (done.returncode == 0) is is_good, done.stdout + done.stderr


@pytest.mark.slow
def test_the_image_builds():
    """Where the base image is there, or can be had from its registry.

    $TORCH_INDEX names a mirror that has torch, where pytorch.org cannot be reached.
    """
    builder = next((name for name in BUILDERS if shutil.which(name)), None)
    if builder is None:
        pytest.skip(f"none of {', '.join(BUILDERS)} is installed")
    base = re.search(r"^ARG PYTHON_IMAGE=(\S+)$", DOCKERFILE.read_text(encoding="utf-8"), re.M)[1]
    run = lambda *words: subprocess.run(  # noqa: E731
        [builder, *words], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    if run("images", "-q", base).stdout.strip() == "" and (pulled := run("pull", base)).returncode:
        pytest.skip(f"{builder} cannot pull {base}: {pulled.stderr.splitlines()[-1:]}")
    index = os.environ.get("TORCH_INDEX")
    options = ["--build-arg", f"TORCH_INDEX={index}"] if index else []
    done = run("build", *options, "-f", DOCKERFILE, "-t", "vanilla-transformer-test", ".")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
