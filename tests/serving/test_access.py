"""API keys, the rate limit, proxies and web pages of other origins."""

import pytest
from libretranslatepy import LibreTranslateAPI
from servers import serving, wait_until

from vanilla_transformer.serving.errors import RequestError
from vanilla_transformer.serving.service import RateLimit, network_of
from vanilla_transformer.serving.settings import parse_models, read_api_keys

LINE, OUTPUT = "a dog sees a cat .", "Hund sieht Katze ."


@pytest.fixture(scope="module")
def server(trained, tmp_path_factory):
    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    keys.write_text("# of the shop\nfirst-key\n\nsecond-key\n", encoding="utf-8")
    options = ["--api-keys", keys, "--rate-limit", 3, "--allow-origin", "https://shop.example"]
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
    elsewhere = {"X-Forwarded-For": "203.0.113.9"}
    assert server.post("/v1/generate", {"texts": LINE}, **elsewhere)[0] == 401
    assert server.post("/v1/generate", {"texts": LINE}, **bearer)[0] == 200
    assert server.post("/v1/generate", {"texts": LINE}, **bearer)[0] == 200
    status, headers, found = server.translate(LINE, api_key="first-key")
    assert status == 429
    assert 1 <= int(headers["Retry-After"]) <= 20
    assert found["error"].startswith("Slowdown: 3 requests per minute")
    assert server.translate(LINE, api_key="second-key")[0] == 200
    wait_until(lambda: any(line.get("key") == 2 for line in server.logs()))
    assert "second-key" not in server.process.stderr


def test_wrong_keys_are_counted_for_their_address(server):
    def ask(address, **key):
        headers = {"X-Forwarded-For": address}
        values = {"q": LINE, "source": "en", "target": "de", **key}
        return server.post("/translate", values, **headers)[0]

    assert [ask("203.0.113.1", api_key="guess") for _ in range(4)] == [403, 403, 403, 429]
    assert ask("203.0.113.1", api_key="second-key") == 200
    assert [ask("203.0.113.2") for _ in range(4)] == [401, 401, 401, 429]
    headers = {"X-Forwarded-For": "203.0.113.1", "Authorization": "Bearer guess"}
    assert server.ask("GET", "/metrics", headers=headers)[0] == 429
    headers = {"X-Forwarded-For": "203.0.113.3", "Content-Type": "application/json"}
    found = [server.ask("POST", "/translate", "{", headers)[0] for _ in range(4)]
    assert found == [401, 401, 401, 429]  # a body that cannot be read holds no key


def test_metrics_need_the_key_and_health_does_not(server):
    assert server.ask("GET", "/metrics", headers={"X-Forwarded-For": "203.0.113.8"})[0] == 401
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


def test_a_bucket_fills_at_an_even_rate():
    now = [0.0]
    limit = RateLimit(2, lambda: now[0])

    def is_allowed(client):
        try:
            limit.count(client)
        except RequestError as error:
            return error.status_code != 429
        return True

    assert [is_allowed("a") for _ in range(3)] == [True, True, False]
    assert is_allowed("b")
    now[0] = 29.0
    assert not is_allowed("a")
    now[0] = 31.0
    assert [is_allowed("a") for _ in range(2)] == [True, False]
    now[0] = 10_000.0
    assert [is_allowed("a") for _ in range(3)] == [True, True, False]


def test_an_ipv6_network_is_one_client():
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff") == "2001:db8::/64"
    assert network_of("192.0.2.1") == "192.0.2.1"
    assert network_of("somewhere") == "somewhere"


@pytest.mark.parametrize(
    ("word", "name", "source", "target"),
    [
        ("en-de=runs/x", "en-de", "en", "de"),
        ("en:pt-BR=runs/x", "en-pt-BR", "en", "pt-BR"),
        ("runs/en-de", "en-de", "en", "de"),
        ("runs/cmudict-demo/", "cmudict-demo", "any", "cmudict-demo"),
        ("user/model-7b", "model-7b", "any", "model-7b"),
    ],
)
def test_models_are_named(word, name, source, target):
    (model,) = parse_models([word])
    assert (model.name, model.source, model.target) == (name, source, target)


def test_keys_are_read_from_lines(tmp_path):
    path = tmp_path / "keys"
    path.write_text("# none\n\n", encoding="utf-8")
    with pytest.raises(ValueError, match="holds no API key"):
        read_api_keys(str(path))
    path.write_text("one\nt wo\n", encoding="utf-8")
    with pytest.raises(ValueError, match="Key 2 in"):
        read_api_keys(str(path))
