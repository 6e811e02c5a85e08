"""The program of docs/translating.md on two processes gives what one process gives."""

import re
from pathlib import Path

from made_up_language import NOUNS, VERBS
from several_processes import run_in_two_processes

from vanilla_transformer.inference.translator import Translator

PAGE = Path(__file__).parents[2] / "docs" / "translating.md"


def test_two_processes_translate_as_one_does(trained, tmp_path):
    (program,) = re.findall(r"```python\n(from accelerate.*?)```", PAGE.read_text(), re.DOTALL)
    lines = [f"a {noun} {verb} a cat ." for noun in NOUNS for verb in VERBS][:23]
    source, output = tmp_path / "test.en", tmp_path / "out.de"
    source.write_text("\n".join(lines), encoding="utf-8")
    for old, new in (
        ("runs/en-de", str(trained)),
        ("test.en", str(source)),
        ('sep="\\n")', f'sep="\\n", file=open({str(output)!r}, "w"))'),
    ):
        assert old in program
        program = program.replace(old, new)
    (tmp_path / "translate.py").write_text(program, encoding="utf-8")
    run_in_two_processes(tmp_path / "translate.py")
    translator = Translator.from_pretrained(str(trained), device="cpu")
    expected = translator.translate(lines, num_beams=5)
    assert output.read_text(encoding="utf-8").splitlines() == expected
