"""Command lines are made from dataclasses of options."""

from dataclasses import dataclass
from functools import partial

import pytest

from vanilla_transformer.command_line import UsageError, parse_options
from vanilla_transformer.options import REQUIRED, argument, option
from vanilla_transformer.rules import refuse


@dataclass(frozen=True, kw_only=True)
class Limits:
    """A group."""

    _argument_group_name = "limits"

    most: int | None = option("the most", ge=1)
    share: float = option("a share", 0.5, gt=0, le=1)


def read_pair(text):
    if "=" not in text:
        raise ValueError(f"{text!r} is not A=B")
    return tuple(text.split("="))


@dataclass(frozen=True, kw_only=True)
class Options:
    """All kinds of fields."""

    files: list[str] = argument("files", "FILE")
    to: str = option("a format", REQUIRED, choices=("a", "b"))
    pairs: list[tuple[str, str]] = option("pairs", [], flag="--pair", type=read_pair)
    keep: bool = option("keep it", True)
    dry_run: bool = option("do nothing", False)
    limits: Limits

    def __post_init__(self):
        refuse((self.dry_run and self.limits.most, "--dry-run excludes --most"))


parse = partial(parse_options, "toy", "Does nothing.", "", Options)


def test_a_command_line_is_read_into_its_dataclass():
    assert parse(["x", "--to", "a"]) == Options(files=["x"], to="a", limits=Limits())
    words = ["--dry-run", "--to=b", "x", "--pair", "a=b", "c=d", "--no-keep", "--share", "1", "y"]
    found = parse([*words[:6], *words[6:]])
    assert found.pairs == [("a", "b"), ("c", "d")]
    assert (found.files, found.to, found.keep, found.dry_run) == (["x", "y"], "b", False, True)
    assert found.limits == Limits(share=1.0)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("x", "--to"),
        ("x --to c", "'c'"),
        ("--to a", "FILE"),
        ("x --to a --most 0", "0 is below 1"),
        ("x --to a --most many", "'many'"),
        ("x --to a --share 0", "0 is not above 0"),
        ("x --to a --share 1.5", "1.5 is above 1"),
        ("x --to a --share nan", "nan is"),
        ("x --to a --pair ab", "'ab' is not A=B"),
    ],
)
def test_what_is_wrong_is_one_line(words, told):
    with pytest.raises(UsageError) as error:
        parse(words.split())
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_options_that_contradict_each_other_are_wrong_usage():
    with pytest.raises(UsageError, match="excludes"):
        parse(["x", "--to", "a", "--dry-run", "--most", "2"])


def test_the_help_shows_groups_names_and_defaults(capsys):
    with pytest.raises(SystemExit):
        parse(["--help"])
    text = capsys.readouterr().out
    for part in ("limits:", "--pair", "--keep, --no-keep", "a share (default: 0.5)", "{a,b}"):
        assert part in text
