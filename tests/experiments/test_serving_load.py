"""The load test of the server, with few clients and a toy model."""

import pytest
import serving_load
from toy import NOUNS, VERBS


@pytest.mark.slow
def test_every_answer_is_counted_and_checked(trained, tmp_path, capfd):
    sources = [
        f"a {noun} {verb} a {other} ." for noun in NOUNS for verb in VERBS for other in NOUNS
    ]
    (tmp_path / "sources").write_text("\n".join(sources), encoding="utf-8")
    options = ["--clients", "8", "--minutes", "0.02", "--engine", "transformers"]
    serving_load.main([str(trained), "--sources", str(tmp_path / "sources"), *options])
    said = capfd.readouterr().out
    assert "round 8: " in said
    assert "one at a time: " in said
    assert said.count("0 wrong, 0 lost, errors: {}") == 2
    assert "after SIGTERM: exit status 0" in said
    assert "killed after" in said
    assert said.endswith("0 lost; exit status after SIGINT 0\n")
