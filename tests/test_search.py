"""`Search.resolve`: what saved settings and a call decide together, and what is refused."""

from types import SimpleNamespace

import pytest
from transformers import GenerationConfig

from vanilla_transformer.model.generation import DEFAULT_MAX_LENGTH
from vanilla_transformer.options import SearchOptions
from vanilla_transformer.search import Search, SearchError


def resolve(saved, given, **options):
    """`positions` are the learned ones of the model."""
    positions = options.pop("positions", None)
    kind = "none" if positions is None else "learned"
    config = SimpleNamespace(position_embedding_type=kind, max_position_embeddings=positions)
    return Search.resolve(GenerationConfig(**saved), given, config=config, **options)


def filled(**chosen):
    """Settings as the stock Trainer leaves them after an evaluation."""
    settings = GenerationConfig(**chosen)
    settings.update(**settings._get_default_generation_params(), defaults_only=True)
    return settings


@pytest.mark.parametrize(
    ("saved", "given", "expected"),
    [
        ({}, {"num_beams": 4}, True),
        ({"num_beams": 1, "early_stopping": False}, {"num_beams": 4}, True),
        ({"early_stopping": False}, {"num_beams": 4}, True),
        ({"num_beams": 2, "early_stopping": False}, {"num_beams": 4}, False),
        ({"num_beams": 2, "early_stopping": "never"}, {"num_beams": 4}, "never"),
        (
            {"num_beams": 1, "early_stopping": False},
            {"num_beams": 4, "early_stopping": False},
            False,
        ),
        ({"num_beams": 2}, {}, True),
    ],
)
def test_a_greedy_search_that_was_saved_does_not_stop_a_beam_search(saved, given, expected):
    assert resolve(saved, given).settings.early_stopping is expected


def test_defaults_that_a_trainer_filled_in_decide_nothing():
    search = Search.resolve(filled(num_beams=3, no_repeat_ngram_size=2), {})
    assert (search.num_beams, search.settings.early_stopping) == (3, True)
    assert search.max_new_tokens == DEFAULT_MAX_LENGTH - 1
    assert search.settings.no_repeat_ngram_size == 2
    assert search.settings.repetition_penalty is None


@pytest.mark.parametrize(
    ("saved", "given", "positions", "expected"),
    [
        ({}, {}, None, (255, {"max_length": 256})),
        ({}, {}, 9, (8, {"max_length": 9})),
        ({"max_length": 9}, {}, None, (8, {"max_length": 9})),
        ({"max_length": 9}, {"max_new_tokens": 4}, None, (4, {"max_length": 5})),
        ({"max_new_tokens": 9}, {}, None, (9, {"max_new_tokens": 9})),
        ({"max_new_tokens": 9}, {"max_length": 4}, None, (3, {"max_new_tokens": 3})),
        ({"max_new_tokens": 9}, {"max_new_tokens": 4}, 3, (2, {"max_new_tokens": 2})),
        ({}, {"max_new_tokens": 4, "max_length": 9}, None, (4, {"max_length": 5})),
    ],
)
def test_a_given_length_counts_under_both_names(saved, given, positions, expected):
    search = resolve(saved, given, positions=positions)
    names = ("max_length", "max_new_tokens")
    found = {name: value for name in names if (value := getattr(search.settings, name))}
    assert (search.max_new_tokens, found) == expected


def test_the_shortest_output_that_is_given_counts():
    search = resolve({"min_new_tokens": 9}, {"min_length": 4})
    assert (search.settings.min_new_tokens, search.settings.min_length) == (3, None)


@pytest.mark.parametrize(
    ("saved", "given", "expected"),
    [
        ({}, {}, (16, 1.0, False)),
        ({"num_beams": 2}, {"length_penalty": 0.6}, (16, 0.6, False)),
        ({}, {"do_sample": True}, (1, 1.0, True)),
        ({"do_sample": True, "num_beams": 1}, {"temperature": 0.5}, (1, 1.0, True)),
        ({}, {"num_beams": 20}, (20, 1.0, False)),
    ],
)
def test_one_of_several_candidates_needs_that_many(saved, given, expected):
    search = resolve(saved, given, candidates=16)
    assert (search.num_beams, search.length_penalty, search.do_sample) == expected
    assert search.n_best == search.settings.num_return_sequences == 16


WRONG = [
    ({"num_bems": 2}, {}, "'num_bems': did you mean 'num_beams'"),
    ({"num_beams": 0}, {}, "`num_beams` is 0"),
    ({"top_p": 1.5, "do_sample": True}, {}, "`top_p` is 1.5"),
    ({"num_return_sequences": 3, "num_beams": 2}, {}, "3 outputs .* the search keeps 2"),
    ({"num_beams": 4}, {"candidates": 16}, "16 outputs .* the search keeps 4"),
    ({"num_return_sequences": 2}, {"candidates": 4}, "`n_best` or `minimum_risk`"),
    ({"early_stopping": "nver", "num_beams": 2}, {}, "`early_stopping` .* nver"),
    ({"temperature": 0.5}, {}, "`temperature` has no effect"),
    ({"top_k": 5, "do_sample": False}, {}, "`top_k` has no effect"),
]


@pytest.mark.parametrize(("given", "options", "message"), WRONG)
def test_what_is_wrong_is_named(given, options, message):
    with pytest.raises(SearchError, match=message):
        resolve({}, given, **options)


@pytest.mark.parametrize(("saved", "given"), [({}, {}), ({"num_beams": 5}, {"num_beams": 1})])
def test_a_length_penalty_with_one_beam_is_told(saved, given, heard):
    resolve({"num_beams": 2}, {"length_penalty": 0.7})
    resolve({"num_beams": 2, "length_penalty": 0.7}, {"num_beams": 1})
    assert not heard.messages
    resolve(saved, {**given, "length_penalty": 0.6})
    assert "may be ignored: ['length_penalty']" in heard.text


def test_a_saved_temperature_is_not_a_given_one():
    assert not resolve({"temperature": 0.5, "do_sample": True}, {"do_sample": False}).do_sample
    assert resolve({"do_sample": True, "num_beams": 1}, {"temperature": 0.5}).do_sample


def test_what_is_saved_about_the_results_counts_for_nobody():
    search = resolve({"return_dict_in_generate": True, "output_scores": True}, {})
    assert not search.settings.return_dict_in_generate
    assert not search.settings.output_scores


def test_every_option_of_a_search_is_a_setting_of_generate():
    assert {*SearchOptions.__dataclass_fields__} <= {*vars(GenerationConfig())}


def test_a_wrong_saved_value_is_called_saved():
    with pytest.raises(SearchError, match="`num_beams` is 0 in the saved settings"):
        resolve({"num_beams": 0}, {})


def test_nothing_given_is_changed_and_the_search_can_be_saved(tmp_path):
    saved = GenerationConfig(num_beams=5, length_penalty=0.6, early_stopping=True, max_length=9)
    before = saved.to_dict()
    for given, expected in (
        ({}, (5, 0.6, True, 9)),
        ({"num_beams": 2}, (2, 0.6, True, 9)),
        ({"num_beams": 1}, (1, None, None, 9)),
        ({"do_sample": True, "num_beams": 1, "top_k": 3}, (1, None, None, 9)),
    ):
        kept = Search.resolve(saved, given).to_save()
        kept.save_pretrained(tmp_path)
        again = GenerationConfig.from_pretrained(tmp_path)
        names = ("num_beams", "length_penalty", "early_stopping", "max_length")
        assert tuple(getattr(again, name) for name in names) == expected
    assert saved.to_dict() == before
    with pytest.raises(ValueError, match="length_penalty"):
        resolve({"num_beams": 1, "length_penalty": 0.6}, {}).to_save()


@pytest.mark.parametrize(
    ("saved", "length", "expected"),
    [
        ({}, 10, (28, {"max_length": 29, "max_new_tokens": None})),
        ({"max_new_tokens": 40}, 10, (28, {"max_length": None, "max_new_tokens": 28})),
        ({"max_length": 20}, 10, (19, {"max_length": 20})),
        ({"min_length": 40}, 10, (255, {"max_length": 256})),
        ({"min_new_tokens": 28}, 10, (28, {"max_length": 29})),
    ],
)
def test_outputs_are_hardly_more_than_twice_as_long_as_references(saved, length, expected):
    search = resolve(saved, {}).capped_by_reference_length(length)
    found = {name: getattr(search.settings, name) for name in expected[1]}
    assert (search.max_new_tokens, found) == expected
