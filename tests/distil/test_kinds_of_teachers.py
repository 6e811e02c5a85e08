"""Teachers that fail: programs in processes of their own, and a server on loopback."""

import time
from collections import Counter

import pytest
from endpoints import chat, endpoint
from programs import REPOSITORY
from servers import serving

from vanilla_transformer import Translator
from vanilla_transformer.distil import journal as journal_module
from vanilla_transformer.distil.journal import Journal, are_too_many
from vanilla_transformer.distil.teachers import (
    Answer,
    ChatTeacher,
    CommandTeacher,
    LibreTranslateTeacher,
    Server,
)

KEY = "sk-do-not-tell"
TEXTS = [f"text {number}" for number in range(40)]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(journal_module, "PAUSES", (0.01, 0.02))


def answers_of(teacher, texts):
    found = {}
    for rows in teacher.answer(texts):
        for number, answer in rows:
            assert number not in found
            found[number] = answer
    return [found[number] for number in range(len(texts))]


# Programs -----------------------------------------------------------------------------------------

READ = "import sys, time, os; lines = sys.stdin.read().splitlines(); "
PROGRAMS = {
    "in order": "print(*(line.upper() for line in lines), sep='\\n', end='\\n' * bool(lines))",
    "banner": "print('Version 1\\nReady'); [print(line.upper()) for line in lines]",
    "dies": "'text 7' in lines and sys.exit('no 7'); [print(line.upper()) for line in lines]",
    "hangs": "'text 7' in lines and time.sleep(60); [print(line.upper()) for line in lines]",
    "leaves a child": "'text 7' in lines and os.system('sleep 60'); "
    "[print(line.upper()) for line in lines]",
    "skips": "[print(line.upper()) for line in lines if line != 'text 7']",
    "doubles": "[print(line.upper(), end='\\n' + 'x\\n' * (line == 'text 7')) for line in lines]",
    "no UTF-8": "[sys.stdout.buffer.write(b'\\xff\\n' if line == 'text 7' else "
    "line.upper().encode() + b'\\n') for line in lines]",
    "buffers": "sys.stdout = open(1, 'w', buffering=1 << 20); "
    "[print(line.upper(), flush=False) for line in lines]; sys.stdout.close()",
}
REASONS = {
    "dies": "status 1 no 7",
    "hangs": "no answer within 2 seconds",
    "leaves a child": "no answer within 2 seconds",
    "skips": "0 lines for 1",
    "doubles": "2 lines for 1",
    "no UTF-8": "an answer that is not UTF-8",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_answers_every_text_but_those_that_it_fails_on(name):
    began = time.monotonic()
    teacher = CommandTeacher(["python3", "-c", READ + PROGRAMS[name]], timeout=2)
    answers = answers_of(teacher, TEXTS[5:9])
    for text, answer in zip(TEXTS[5:9], answers, strict=True):
        failed = text == "text 7" and name in REASONS
        assert answer.text == (None if failed else text.upper())
        assert answer.reason == (REASONS[name] if failed else "")
    assert time.monotonic() - began < 20


def test_a_program_that_never_ends_or_does_not_exist_is_refused_at_once():
    with pytest.raises(ValueError, match="no answer within 1 seconds"):
        CommandTeacher(["sleep", "60"], timeout=1)
    with pytest.raises(FileNotFoundError):
        CommandTeacher(["no-such-program-here"], timeout=1)


# Servers ------------------------------------------------------------------------------------------


def chat_teacher(address, timeout=5):
    return ChatTeacher("m", "{text}", Server(f"{address}/v1", KEY, timeout, 4))


def soon(status):
    return lambda handler, times: times == 1 and handler.send(status, {}, retry_after_ms="10")


PASSING = {  # at the first request alone
    "429": soon(429),
    "500": soon(500),
    "stalls": lambda handler, times: times == 1 and time.sleep(3) is None,
    "closes": lambda handler, times: times == 1 and handler.connection.close() is None,
    "broken JSON": lambda handler, times: times == 1 and handler.send(200, b'{"choices": [{"mes'),
    "no choices": lambda handler, times: times == 1 and handler.send(200, {"choices": []}),
    "empty": lambda handler, times: times == 1 and handler.send(200, chat(" ")),
}
LASTING = {
    "empty": (chat(""), "an empty answer"),
    "refuses": (chat(None, message={"refusal": "I will not"}), "refused: I will not"),
    "cut off": (chat("TEX", finish_reason="length"), "an answer that is cut off"),
    "bad": (None, "BadRequestError"),
}


@pytest.mark.parametrize("name", PASSING)
def test_a_fault_that_passes_loses_no_text(name, tmp_path):
    def misbehave(handler, text, times):
        if text != "text 7":
            return False
        done = PASSING[name](handler, times)
        return times == 1 and done is not False

    with endpoint(misbehave) as (address, asked):
        journal = Journal(tmp_path / "answers.jsonl", chat_teacher(address, 1), False, ())
        journal.ask(TEXTS)
    assert [journal.answers[text] for text in TEXTS] == [text.upper() for text in TEXTS]
    assert journal.failed == {}
    assert journal.tokens == [7 * 40, 3 * 40]
    assert asked == Counter(TEXTS) + Counter(["text 7"])  # no other text twice


@pytest.mark.parametrize("name", LASTING)
def test_a_fault_that_lasts_has_its_reason(name, tmp_path):
    body, reason = LASTING[name]

    def misbehave(handler, text, times):
        if text != "text 7":
            return False
        handler.send(200 if body else 400, body or {"error": {"message": f"bad {KEY}"}})
        return True

    with endpoint(misbehave) as (address, _):
        journal = Journal(tmp_path / "answers.jsonl", chat_teacher(address), False, ())
        journal.ask(TEXTS)
    assert journal.failed.keys() == {"text 7"}
    assert journal.failed["text 7"].startswith(reason)
    assert len(journal.answers) == 39
    assert KEY not in str(journal.failed) + (tmp_path / "answers.jsonl").read_text()


def test_a_wrong_key_or_model_ends_at_once(tmp_path):
    def misbehave(handler, text, times):
        handler.send(401, {"error": {"message": f"Incorrect API key: {KEY}"}})
        return True

    with (
        endpoint(misbehave) as (address, asked),
        pytest.raises(ValueError, match="AuthenticationError") as error,
    ):
        list(chat_teacher(address).answer(TEXTS))
    assert KEY not in str(error.value)
    assert asked.total() == 1


def test_a_server_that_is_down_is_not_asked_for_every_text(tmp_path):
    with endpoint() as (address, _):
        pass
    journal = Journal(tmp_path / "answers.jsonl", chat_teacher(address), False, ())
    journal.teacher.client.max_retries = 0
    texts = [f"text {number}" for number in range(100)]
    journal.ask(texts)
    assert are_too_many(len(journal.failed), len(texts))
    assert len(journal.failed) < 25
    assert "APIConnectionError" in journal.describe_failures()


def test_a_server_of_libretranslate_gets_languages_and_key():
    with endpoint() as (address, _):
        teacher = LibreTranslateTeacher("en", "pt", Server(address, KEY, 5, 2))
        answers = answers_of(teacher, TEXTS)
    assert [answer.text for answer in answers] == [text.upper() for text in TEXTS]


def test_the_server_of_this_package_is_a_teacher():
    model, texts = REPOSITORY / "model_cards" / "program-texts", ["Open the file", "Save as"]
    with serving(model) as server:
        place = Server(f"http://127.0.0.1:{server.port}", "", 30, 2)
        answers = answers_of(LibreTranslateTeacher("en", "de", place), texts)
        refused = answers_of(LibreTranslateTeacher("en", "xx", place), texts[:1])
    translated = Translator.from_pretrained(model).translate(texts, tgt_lang="de")
    assert [answer.text for answer in answers] == translated
    assert "xx" in refused[0].reason


class Strict(CommandTeacher):
    """Fails on some texts, or after some answers on all."""

    fails, left = staticmethod(lambda text: text[-1] == "7"), 10_000

    def answer(self, texts):
        for number, text in enumerate(texts):
            self.left -= 1
            is_wrong = self.left < 0 or self.fails(text)
            yield [(number, Answer(None, "odd") if is_wrong else Answer(text))]


def strict_journal(folder, **attributes):
    teacher = Strict(["cat"], 5)
    vars(teacher).update(attributes)
    return Journal(folder / "answers.jsonl", teacher, False, ())


@pytest.mark.parametrize("is_later", [False, True])
def test_texts_that_always_fail_do_not_end_a_labelling_of_many(tmp_path, is_later):
    texts = [f"{number} texts" for number in range(80)] + [f"text {number}" for number in range(80)]
    for _ in range(1 + is_later):
        journal = strict_journal(tmp_path)
        journal.ask(texts)
        assert journal.missing(texts) == [text for text in texts if text[-1] == "7"]
        assert journal.failed == dict.fromkeys(journal.missing(texts), "odd")


def test_a_teacher_that_is_down_later_is_not_asked_for_every_text(tmp_path):
    texts = [f"text {number}" for number in range(4000)]
    strict_journal(tmp_path, fails=lambda text: False).ask(texts[:2000])
    journal = strict_journal(tmp_path, left=0)
    journal.ask(texts)
    assert len(journal.failed) < 100
    assert len(journal.answers) == 2000


@pytest.mark.parametrize(("first", "count"), [(500, 30), (530, 30), (850, 50)])
def test_texts_that_fail_in_a_row_do_not_keep_others_from_an_answer(tmp_path, first, count):
    texts = [f"text {number}" for number in range(1000)]
    wrong = texts[first : first + count]
    for count in (540, 1000):  # a second process goes on where the first one was ended
        journal = strict_journal(tmp_path, fails=wrong.__contains__)
        journal.ask(texts[:count])
    assert journal.missing(texts) == wrong
    assert journal.failed.keys() == {*wrong}


def test_failures_that_pass_are_asked_again_behind_those_that_stay(tmp_path):
    texts = [f"text {number}" for number in range(1000)]
    asked = Counter()

    def fails(text):
        asked[text] += 1
        number = int(text.split()[1])
        return (number < 900 and number % 45 == 0) or (number > 960 and asked[text] == 1)

    journal = strict_journal(tmp_path, fails=fails)
    journal.ask(texts)
    assert journal.missing(texts) == texts[:900:45]


def test_parts_that_stay_are_set_apart(tmp_path):
    with endpoint(lambda handler, text, times: times == 0) as (address, asked):
        journal = Journal(tmp_path / "answers.jsonl", chat_teacher(address), True, ())
        journal.ask(["save %d files to {path} [1]", "plain"])
    assert asked.keys() == {"save [2] files to [3] [1]", "plain"}
    assert journal.answers["save %d files to {path} [1]"] == "SAVE %d FILES TO {path} [1]"
