"""Teachers: models, programs and servers that answer texts."""

import os
import shlex
import signal
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from multiprocessing.pool import ThreadPool
from subprocess import PIPE, Popen, TimeoutExpired
from time import monotonic
from typing import Any, NamedTuple, cast

from vanilla_transformer.distil.options import COMMAND, DistilOptions
from vanilla_transformer.files.text_files import short_line
from vanilla_transformer.inference.translator import TEXTS_PER_CHUNK, Translator

_RETRIES = 4  # of a request, by the package openai, with growing pauses
_LONGEST_REASON = 200


class Answer(NamedTuple):
    """The answer of a teacher to a text.

    Attributes:
        text: The answer. None: the teacher has failed.
        reason: The reason of the failure.
        tokens: The numbers of input and output tokens, if they are paid for.
    """

    text: str | None
    reason: str = ""
    tokens: tuple[int, int] = (0, 0)


class Teacher(ABC):
    """Answers texts.

    Attributes:
        chunk: The most texts of a call.
        start: Seconds that each call takes besides its texts.
        keeps_parts: Whether kept parts are safe with it; otherwise it reads marks in their place.
        is_remote: Whether each answer is a request, which may cost something.
    """

    chunk, start = TEXTS_PER_CHUNK, 0.0
    keeps_parts = is_remote = False

    @abstractmethod
    def answer(self, texts: Sequence[str]) -> Iterator[list[tuple[int, Answer]]]:
        """Yields answers as they come, each with the index of its text."""


class ModelTeacher(Teacher):
    """A saved model, or several as an ensemble."""

    chunk, keeps_parts = 256, True

    def __init__(self, names: Sequence[str], source: str | None, target: str | None) -> None:
        self._translator, self._languages = Translator.from_pretrained(names), (source, target)

    def answer(self, texts: Sequence[str]) -> Iterator[list[tuple[int, Answer]]]:
        """Translates the texts together."""
        source, target = self._languages
        outputs = self._translator.translate(list(texts), src_lang=source, tgt_lang=target)
        yield list(enumerate(map(Answer, outputs)))


class CommandTeacher(Teacher):
    """A program that writes a line for each line that it reads.

    Each chunk goes to a process of its own. If the process dies, hangs, or writes another number of
    lines, the halves of the chunk are tried, down to single lines. A program's output for empty
    input is a banner, which is removed.
    """

    chunk = 512

    def __init__(self, words: Sequence[str], timeout: float) -> None:
        self._words, self._timeout = words, timeout
        self._late, self._banner = f"no answer within {timeout:g} seconds", list[str]()
        began = monotonic()
        self._banner, problem = self._run([])
        self.start = monotonic() - began
        if problem == self._late:
            raise ValueError(f"{shlex.join(words)} does not end when its input ends: {problem}.")

    def answer(self, texts: Sequence[str]) -> Iterator[list[tuple[int, Answer]]]:
        """Runs the program on all texts; if it fails, on parts of them."""
        waiting = [range(len(texts))]
        while waiting:
            part = waiting.pop()
            lines, problem = self._run([texts[index] for index in part])
            if not problem and len(lines) != len(part):
                problem = f"{len(lines)} lines for {len(part)}"
            if not problem:
                yield list(zip(part, map(Answer, lines), strict=True))
            elif len(part) == 1:
                yield [(part[0], Answer(None, problem))]
            else:
                waiting += [part[len(part) // 2 :], part[: len(part) // 2]]

    def _run(self, lines: Sequence[str]) -> tuple[list[str], str]:
        """Returns the lines that a process writes, and its problem; "": it has none."""
        content = "".join(f"{line}\n" for line in lines).encode()
        with Popen(
            self._words, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
        ) as process:
            try:
                written, errors = process.communicate(content, self._timeout)
                text = written.decode()
            except TimeoutExpired:
                return [], self._late
            except UnicodeDecodeError:
                return [], "an answer that is not UTF-8"
            finally:
                with suppress(ProcessLookupError):  # with the processes that it has started
                    os.killpg(process.pid, signal.SIGKILL)
        if process.returncode:
            last = errors.decode(errors="replace").strip().rpartition("\n")[2]
            return [], f"status {process.returncode} {short_line(last, _LONGEST_REASON)}".strip()
        answers = text.replace("\r\n", "\n").removesuffix("\n").split("\n") if text else []
        begin = len(self._banner)
        return answers[begin if answers[:begin] == self._banner else 0 :], ""


@dataclass(frozen=True)
class Server:
    """A server that answers requests."""

    address: str
    key: str  # "": it needs none
    timeout: float  # seconds for a request
    parallel: int  # requests at the same time


class EndpointTeacher(Teacher):
    """A server as a teacher; the package openai sends the requests."""

    is_remote = True

    def __init__(self, server: Server) -> None:
        from openai import OpenAI

        self._server, key = server, server.key or "none"
        options: dict[str, Any] = {"timeout": server.timeout, "max_retries": _RETRIES}
        self.client = OpenAI(base_url=server.address, api_key=key, **options)

    @abstractmethod
    def request(self, text: str) -> Answer:
        """Sends one request; may raise any error."""

    def answer(self, texts: Sequence[str]) -> Iterator[list[tuple[int, Answer]]]:
        """Sends the requests from daemon threads, which Ctrl-C does not wait for.

        The first one is sent alone: a wrong key or model fails once.
        """
        numbered = enumerate(texts)
        for first in islice(numbered, 1):
            yield [self._ask(first)]
        with ThreadPool(self._server.parallel) as threads:
            for answer in threads.imap_unordered(self._ask, numbered):
                yield [answer]

    def _ask(self, numbered: tuple[int, str]) -> tuple[int, Answer]:
        """Returns the answer to a text, with its number.

        Raises:
            ValueError: Every text would have the same error.
        """
        from openai import AuthenticationError, NotFoundError, PermissionDeniedError

        index, text = numbered
        try:
            answer = self.request(text)
        except (AuthenticationError, NotFoundError, PermissionDeniedError) as error:
            raise ValueError(f"{self.client.base_url}: {self._reason(error)}") from None
        except Exception as error:  # one text fails; the other texts go on
            return index, Answer(None, self._reason(error))
        is_empty = answer.text is not None and not answer.text.strip()
        return index, Answer(None, "an empty answer", answer.tokens) if is_empty else answer

    def _reason(self, error: Exception) -> str:
        response = getattr(error, "response", None)  # a server's own words say more
        text = f"{type(error).__name__}: {error if response is None else response.text}"
        key = self._server.key
        return short_line(text.replace(key, "...") if key else text, _LONGEST_REASON)


class ChatTeacher(EndpointTeacher):
    """A language model behind an address of OpenAI's form."""

    def __init__(self, model: str, prompt: str, server: Server) -> None:
        super().__init__(server)
        self._model, self._prompt = model, prompt

    def request(self, text: str) -> Answer:
        """Asks with the prompt; the answer must be whole."""
        content = self._prompt.replace("{text}", text)
        reply = self.client.chat.completions.create(
            model=self._model, messages=[{"role": "user", "content": content}], temperature=0
        )
        choice, usage = reply.choices[0], reply.usage
        tokens = (usage.prompt_tokens, usage.completion_tokens) if usage else (0, 0)
        if choice.finish_reason == "length":
            return Answer(None, "an answer that is cut off", tokens)
        if choice.message.refusal:
            return Answer(None, f"refused: {choice.message.refusal}", tokens)
        return Answer((choice.message.content or "").strip(), tokens=tokens)


class LibreTranslateTeacher(EndpointTeacher):
    """A server of LibreTranslate's form."""

    def __init__(self, source: str | None, target: str | None, server: Server) -> None:
        super().__init__(server)
        self._fields = {"source": source or "auto", "target": target, "format": "text"}
        self._fields |= {"api_key": server.key} if server.key else {}

    def request(self, text: str) -> Answer:
        """Asks for one translation."""
        reply = self.client.post("/translate", cast_to=object, body={**self._fields, "q": text})
        return Answer(cast(dict[str, str], reply)["translatedText"])


def open_teacher(options: DistilOptions) -> Teacher:
    """Opens the teacher that the options name."""
    name = options.teacher
    if options.kind == "model":
        return ModelTeacher(options.models, *options.languages)
    if options.kind == "command":
        return CommandTeacher(shlex.split(name[len(COMMAND) :]), options.timeout)
    is_chat, address = options.kind == "chat", name.removesuffix("/translate")
    key = os.environ.get("OPENAI_API_KEY" if is_chat else "LIBRETRANSLATE_API_KEY", "")
    server = Server(address, key, options.timeout, options.parallel)
    if is_chat:
        return ChatTeacher(str(options.teacher_model), options.read_prompt(), server)
    return LibreTranslateTeacher(*options.languages, server)
