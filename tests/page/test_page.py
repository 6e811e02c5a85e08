"""The page as a person and as a program use it: a real process, and a real browser."""

import json
import signal
import urllib.request

import programs
import pytest
from gradio_client import Client
from playwright.sync_api import expect
from programs import command
from servers import Server, wait_until
from tiny_models import make_model

from vanilla_transformer import VanillaTransformerTokenizer

pytest_plugins = ["browsers"]
NASTY = "<img/src=x/onerror=window.hacked=1>"
"""A word that would run a script, if it were not escaped."""


@pytest.fixture(scope="module")
def nasty_model(tmp_path_factory):
    """An untrained model of two layers whose vocabulary is a word that acts as HTML."""
    folder = tmp_path_factory.mktemp("models") / "<b>nasty"
    tokenizer = VanillaTransformerTokenizer.train([NASTY, "{{x}} ${y}"], kind="word")
    heads = {"encoder_attention_heads": 4, "decoder_layers": 2}
    model = make_model(vocab_size=len(tokenizer), noise=0.0, **heads)
    model.generation_config.max_new_tokens = 8
    model.generation_config.num_beams = 5
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def address(trained, nasty_model):
    """The address of a page for two models, in a process of its own."""
    argv = ("page", trained, nasty_model, "--device", "cpu")
    process = programs.start("vanilla_transformer", *argv)
    try:
        wait_until(lambda: "Ctrl-C stops it" in process.stdout or process.poll() is not None)
        assert process.poll() is None, process.stderr
        yield process.stdout.split()[4]
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130


@pytest.fixture(scope="module")
def client(address):
    return Client(address, verbose=False, analytics_enabled=False)


def run(client, text, model, engine="transformers", beams=2, outputs=2, temperature=0):
    """Presses Run; returns (status, outputs, shown, alignment, heads, ablation, shapes) as HTML."""
    choice = (0, -1, "Cross-attention", 0)
    search = (text, model, engine, beams, outputs, temperature)
    return client.predict(*search, *choice, api_name="/run")


def test_a_program_gets_what_the_page_shows(client, trained):
    status, outputs, _, alignment, heads, ablation, shapes = run(
        client, "a dog sees a cat .", trained.name
    )
    assert "Computed by transformers" in status
    assert "Hund sieht Katze ." in outputs
    assert alignment.count("data-row=") == 5 * 7
    assert heads.count("<figure") == 2
    assert ablation == ""
    assert "VanillaTransformerEncoder" in shapes


def test_half_of_a_surrogate_pair_is_named(address, trained):
    """As a browser sends it: the client in Python refuses to."""
    data = ["a \ud83d b", trained.name, "transformers", 2, 2, 0, 0, -1, "Cross-attention", 0]
    body = json.dumps({"data": data}).encode("ascii")
    call = f"{address}gradio_api/call/run"
    headers = {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(call, body, headers), timeout=60) as reply:
        event = json.load(reply)["event_id"]
    with urllib.request.urlopen(f"{call}/{event}", timeout=60) as reply:
        assert "surrogates not allowed" in reply.read().decode()


def test_the_page_refers_to_no_other_host(address):
    html = urllib.request.urlopen(address, timeout=30).read().decode()
    assert "fonts.googleapis.com" not in html
    for name in ("cdnjs", "googletagmanager", "unpkg", "jsdelivr"):
        assert f"{name}." not in html


def test_a_port_that_is_taken_is_named(address, trained):
    port = address.rstrip("/").rpartition(":")[2]
    done = command("page", trained, "--port", port)
    assert done.returncode == 1
    assert port in done.stderr.splitlines()[-1]


def test_the_page_takes_no_files(address):
    server = Server(None, int(address.rstrip("/").rpartition(":")[2]))
    body = (
        '--x\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\nbig\r\n--x--\r\n'
    )
    form = {"Content-Type": "multipart/form-data; boundary=x"}
    assert server.ask("POST", "/gradio_api/upload", body, form)[0] == 413
    assert server.ask("GET", "/gradio_api/file=/etc/passwd")[0] == 403


@pytest.fixture
def visit(chromium, address):
    """Opens the page; at the end, checks that nothing was complained of or loaded elsewhere."""
    complaints, elsewhere, contexts = [], [], []

    def open_page(width=1280, scheme="light"):
        contexts.append(
            chromium.new_context(
                viewport={"width": width, "height": 900}, color_scheme=scheme, base_url=address
            )
        )
        page = contexts[-1].new_page()
        page.on("console", lambda one: complaints.append(f"{one.type}: {one.text}"))
        page.on("pageerror", lambda one: complaints.append(str(one)))
        page.on("request", lambda one: elsewhere.append(one.url))
        page.goto("/")
        page.get_by_role("button", name="Run").wait_for()
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert [one for one in complaints if not one.startswith(("log:", "info:"))] == []
    assert [url for url in elsewhere if not url.startswith((address, "data:", "blob:"))] == []


def type_and_run(page, text):
    page.get_by_label("Text").fill(text)
    page.get_by_role("button", name="Run").click()
    page.locator("#status").get_by_text("Computed by").wait_for()


def lit(page, side):
    """The tokens of a side that are lit up, with the strength of their light."""
    chips = page.locator(f'#alignment .vt-chip[data-side="{side}"]').all()
    shares = [one.evaluate("one => one.style.getPropertyValue('--w')") for one in chips]
    return {index: float(share) for index, share in enumerate(shares) if share}


def choose(page, part, option):
    page.locator(f"#{part} input").click()
    page.get_by_role("option", name=option, exact=True).click()


def test_a_token_lights_up_what_belongs_to_it_by_pointer_and_keyboard(visit):
    page = visit()
    type_and_run(page, "a dog sees a cat .")
    assert "Hund sieht Katze ." in page.locator("#answer").inner_text()
    targets, sources = (
        page.locator(f'#alignment .vt-chip[data-side="{side}"]') for side in ("target", "source")
    )
    targets.nth(2).hover()
    shares = lit(page, "source")
    assert len(shares) == sources.count()
    assert sum(shares.values()) == pytest.approx(1, abs=0.05)
    assert page.locator("#alignment .vt-readout").inner_text().startswith("Katze attends to")
    assert page.locator("#alignment td.vt-on").count() == sources.count()

    sources.nth(1).hover()
    assert len(lit(page, "target")) == targets.count()
    assert page.locator("#alignment .vt-readout").inner_text().startswith("dog is attended to by")

    targets.nth(0).focus()
    by_focus = lit(page, "source")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert lit(page, "source") == shares != by_focus
    page.keyboard.press("Home")
    assert lit(page, "source") == by_focus

    choose(page, "align-head", "head 1")
    page.locator("#alignment .vt-chip.vt-active").first.wait_for(state="detached")
    targets.nth(2).hover()
    assert lit(page, "source") != shares


def test_the_number_of_outputs_follows_the_beams_unless_samples_are_drawn(visit):
    page = visit()
    outputs = page.locator("#outputs input[type=number]")
    beams = page.locator("#beams input[type=number]")
    assert beams.input_value() == outputs.input_value() == "2"  # as saved with the model
    beams.fill("3")
    outputs.fill("3")
    beams.fill("2")
    page.wait_for_function("document.querySelector('#outputs input[type=number]').value === '2'")
    type_and_run(page, "a dog sees a cat .")
    assert page.locator("#answer li").count() == 2
    choose(page, "shown", "Output 2")
    second = page.locator("#answer li").nth(1).locator(".vt-token bdi").all_inner_texts()
    assert second != page.locator("#answer li").nth(0).locator(".vt-token bdi").all_inner_texts()
    expect(page.locator('#alignment .vt-chip[data-side="target"]')).to_have_text(second)
    outputs.fill("5")
    page.get_by_role("button", name="Run").click()
    page.get_by_role("alert").get_by_text("the search keeps 2").wait_for()
    page.locator("#temperature input[type=number]").fill("1.5")
    page.get_by_role("button", name="Run").click()
    page.locator("#answer li").nth(4).wait_for()


def test_a_head_switched_off_changes_the_output_and_back(visit):
    page = visit()
    type_and_run(page, "a dog sees a cat .")
    page.get_by_role("tab", name="Heads").click()
    figures = page.locator("#heads figure")
    figures.first.wait_for()
    figures.first.focus()
    page.keyboard.press("ArrowDown")
    assert page.locator("#heads .vt-readout").inner_text().startswith("Head 0: sieht attends to a:")

    boxes = page.locator("#ticks input")
    boxes.nth(0).check()
    page.locator("#status").get_by_text("1 head off").wait_for()
    boxes.nth(1).check()
    page.locator("#status").get_by_text("2 heads off").wait_for()
    assert page.locator("#ablation .vt-whole").inner_text() == "Hund sieht Katze ."
    assert page.locator("#ablation .vt-text").inner_text() != "Hund sieht Katze ."
    assert page.locator("#heads .vt-off").count() == 2

    choose(page, "kind", "Encoder self-attention")
    page.locator("#ticks input:checked").first.wait_for(state="detached")
    assert page.locator("#heads .vt-off").count() == 0
    choose(page, "kind", "Cross-attention")
    page.locator("#ticks input:checked").nth(1).wait_for()

    page.get_by_role("button", name="Switch all heads on").click()
    page.locator("#ticks input:checked").first.wait_for(state="detached")
    assert "head" not in page.locator("#status").inner_text()
    assert page.locator("#ablation").inner_text() == ""
    page.get_by_role("tab", name="Shapes").click()
    page.get_by_text("VanillaTransformerForConditionalGeneration").wait_for()


def test_html_in_texts_tokens_and_names_is_shown_and_does_nothing(visit, nasty_model):
    page = visit()
    choose(page, "model", nasty_model.name)
    page.locator("#title").get_by_text(nasty_model.name).wait_for()
    assert page.locator("#beams input[type=number]").input_value() == "5"
    type_and_run(page, f"{NASTY}\n{{{{x}}}} ${{y}}")
    assert page.locator("#answer h3").nth(0).inner_text() == f"Source 1 {NASTY}"
    assert page.locator("#answer h3").nth(1).inner_text() == "Source 2 {{x}} ${y}"
    assert page.locator("#alignment .vt-chip").nth(0).inner_text() == NASTY
    page.locator("#alignment .vt-chip").nth(0).hover()
    assert NASTY in page.locator("#alignment .vt-readout").inner_text()
    type_and_run(page, "a\u0007")
    assert page.evaluate("window.hacked") is None
