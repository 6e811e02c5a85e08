"""API keys, proxies and web pages of other origins."""

import pytest
from libretranslatepy import LibreTranslateAPI
from servers import serving, wait_until

from vanilla_transformer.serving.settings import (
    Settings,
    parse_glossary,
    parse_model,
    read_api_keys,
)

LINE, OUTPUT = "a dog sees a cat .", "Hund sieht Katze ."


@pytest.fixture(scope="module")
def server(trained, tmp_path_factory):
    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    keys.write_text("# of the shop\nfirst-key\n\nsecond-key\n", encoding="utf-8")
    options = ["--api-keys", keys, "--allow-origin", "https://shop.example"]
    options += ["--trust-proxy", "127.0.0.1", "--engine", "transformers"]
    with serving(f"en-de={trained}", *options) as running:
        yield running


def test_a_key_opens_the_server_and_is_counted(server):
    assert server.translate(LINE)[0] == 401
    status, _, found = server.translate(LINE, api_key="third-key")
    assert (status, found) == (403, {"error": "Invalid API key"})
    assert server.translate(LINE, api_key="f\u00fcr-dich")[0] == 403
    client = LibreTranslateAPI(f"http://127.0.0.1:{server.port}", api_key="first-key")
    assert client.translate(LINE, "en", "de") == OUTPUT
    bearer = {"Authorization": "Bearer first-key"}
    assert server.post("/v1/generate", {"texts": LINE})[0] == 401
    assert server.post("/v1/generate", {"texts": LINE}, **bearer)[0] == 200
    assert server.translate(LINE, api_key="second-key")[0] == 200
    wait_until(lambda: any(line.get("key") == 2 for line in server.logs()))
    assert "second-key" not in server.process.stderr


def test_metrics_need_the_key_and_health_does_not(server):
    assert server.ask("GET", "/metrics")[0] == 401
    assert server.ask("GET", "/metrics", headers={"Authorization": "Bearer second-key"})[0] == 200
    for path in ("/health", "/ready", "/languages", "/frontend/settings"):
        assert server.ask("GET", path)[0] == 200
    assert server.ask("GET", "/frontend/settings")[2]["keyRequired"] is True


def test_only_named_origins_may_ask(server):
    for origin, allowed in (("https://shop.example", True), ("https://other.example", False)):
        asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        _, headers, _ = server.ask("OPTIONS", "/translate", headers=asked)
        assert headers["access-control-allow-origin"] == (origin if allowed else None)


def test_a_trusted_proxy_names_the_client(server):
    server.ask("GET", "/no", headers={"X-Forwarded-For": "203.0.113.7"})
    wait_until(lambda: any(line.get("client") == "203.0.113.7" for line in server.logs()))


@pytest.mark.parametrize(
    ("word", "name", "source", "target"),
    [
        ("en-de=runs/x", "en-de", "en", "de"),
        ("en:pt-BR=runs/x", "en-pt-BR", "en", "pt-BR"),
        ("runs/en-de", "en-de", "en", "de"),
        ("runs/cmudict-demo/", "cmudict-demo", "any", "cmudict-demo"),
        ("user/model-7b", "model-7b", "any", "model-7b"),
        ("runs/eng_Latn-deu_Latn", "eng_Latn-deu_Latn", "eng_Latn", "deu_Latn"),
    ],
)
def test_models_are_named(word, name, source, target):
    model = parse_model(word)
    assert (model.name, model.source, model.target) == (name, source, target)


def test_a_link_or_what_it_leads_to_names_the_direction(tmp_path, monkeypatch):
    (tmp_path / "model-7").mkdir()
    (tmp_path / "en-de").symlink_to("model-7")
    (tmp_path / "de-en").mkdir()
    (tmp_path / "latest").symlink_to("de-en")
    monkeypatch.chdir(tmp_path / "en-de")
    found = [parse_model(str(tmp_path / name)) for name in ("en-de", "latest")]
    assert [(one.source, one.target) for one in found] == [("en", "de"), ("de", "en")]


@pytest.mark.parametrize("words", [("a=x", "a=y"), ("b=x", "a=x", "b=x")])
def test_two_glossaries_of_one_name_are_refused(words):
    with pytest.raises(ValueError, match="of another glossary: choose another name"):
        Settings([parse_model("en-de=runs/x")], list(map(parse_glossary, words)))


def test_keys_are_read_from_lines(tmp_path):
    path = tmp_path / "keys"
    path.write_text("# none\n\n", encoding="utf-8")
    with pytest.raises(ValueError, match="holds no API key"):
        read_api_keys(str(path))
    path.write_text("# of the shop\none\n\n two\n", encoding="utf-8")
    assert read_api_keys(str(path)) == ["one", "two"]
