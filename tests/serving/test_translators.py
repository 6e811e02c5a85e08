"""Models that come and go: each request has its own model, and memory holds few of them."""

import asyncio
import random
import re
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
from made_up_language import NOUNS
from servers import serving

from vanilla_transformer.serving.monitoring import Metrics
from vanilla_transformer.serving.translators import Translators

LINE, OUTPUT = "a dog sees a cat .", "Hund sieht Katze ."


class Memory:
    """Loads names in the place of translators, and knows which are in use."""

    def __init__(self, most):
        self.most, self.metrics, self.loads, self.used = most, Metrics(), [], []
        self.translators = Translators(self.load, most, self.metrics)

    def load(self, name):
        if name == "broken":
            raise ValueError("it is broken")
        self.loads.append(name)
        return name

    async def ask(self, name, steps=3):
        async with self.translators.use(name) as (translator, seconds):
            self.used.append(name)
            assert len({*self.used}) <= self.most
            try:
                for _ in range(steps):
                    await asyncio.sleep(0)
            finally:
                self.used.remove(name)
            return translator.translator, seconds > 0


@pytest.mark.parametrize(("names", "most"), [(20, 3), (5, 1), (2, 2)])
def test_every_request_gets_its_model_and_few_are_in_use(names, most):
    memory, chance = Memory(most), random.Random(names)

    async def ask_all():
        asked = [str(chance.randrange(names)) for _ in range(300)]
        tasks = [asyncio.create_task(memory.ask(name, chance.randrange(9))) for name in asked]
        for task in chance.sample(tasks, 30):  # clients that leave
            await asyncio.sleep(0)
            task.cancel()
        return asked, await asyncio.gather(*tasks, return_exceptions=True)

    asked, found = asyncio.run(asyncio.wait_for(ask_all(), 60))
    answers = [(name, one) for name, one in zip(asked, found, strict=True) if type(one) is tuple]
    assert len(answers) >= 270
    assert all(name == translator for name, (translator, _) in answers)
    assert memory.metrics.registry.get_sample_value("vanilla_transformer_waiting_requests") == 0
    count = "vanilla_transformer_loading_seconds_count"
    assert memory.metrics.registry.get_sample_value(count) == len(memory.loads) >= names


def test_the_one_that_was_asked_for_least_recently_leaves():
    memory = Memory(2)

    async def ask_in_turn(names):
        return [await memory.ask(name) for name in names]

    found = asyncio.run(ask_in_turn("abacab"))
    assert [waited for _, waited in found] == [True, True, False, True, False, True]
    assert memory.loads == ["a", "b", "c", "b"]
    assert [bool(memory.translators.loaded(name)) for name in "abc"] == [True, True, False]


def test_an_error_of_loading_is_that_of_those_who_ask_for_it():
    memory = Memory(1)

    async def ask_all():
        asked = [memory.ask(name) for name in ("broken", "a", "broken", "a")]
        found = await asyncio.gather(*asked, return_exceptions=True)
        return [*found, await memory.ask("b")]

    found = asyncio.run(ask_all())
    assert [type(one) for one in found] == [ValueError, tuple, ValueError, tuple, tuple]


def test_a_server_of_six_models_holds_two_of_them(trained, tmp_path):
    """Each model has words of its own, so that an answer tells which one has made it."""
    codes = ["de", "nl", "sv", "da", "nb", "fi"]
    for code in codes:
        shutil.copytree(trained, tmp_path / code)
        for path in (tmp_path / code).glob("*tokenizer.json"):
            text = path.read_text(encoding="utf-8")
            for noun in NOUNS.values():
                text = re.sub(rf'"{noun}"', f'"{noun}{code}"', text)
            path.write_text(text, encoding="utf-8")
    models = [f"en-{code}={tmp_path / code}" for code in codes]
    with serving(*models, "--max-loaded", 2, "--engine", "transformers") as server:
        listed = server.ask("GET", "/languages")[2]
        assert [one["targets"] for one in listed if one["code"] == "en"] == [codes]
        assert [set(one) for one in server.ask("GET", "/v1/models")[2]] == [
            {"name", "directions"}
        ] * 6
        asked = codes * 8
        random.Random(0).shuffle(asked)
        with ThreadPoolExecutor(16) as pool:
            found = list(pool.map(lambda code: server.translate(LINE, target=code), asked))
        expected = [re.sub(r"(Hund|Katze)", rf"\1{code}", OUTPUT) for code in asked]
        assert [answer["translatedText"] for _, _, answer in found] == expected
        assert all("X-Request-ID" in headers for _, headers, _ in found)
        _, warm = (server.translate(LINE, target=code)[1] for code in [asked[0]] * 2)
        assert "Server-Timing" not in warm
        timed = [headers["Server-Timing"] for _, headers, _ in found if "Server-Timing" in headers]
        assert all(re.fullmatch(r"loading;dur=\d+", value) for value in timed)
        assert len(timed) >= 6
        assert server.metric("loading_seconds_count") >= 6
        assert server.metric("waiting_requests") == 0
