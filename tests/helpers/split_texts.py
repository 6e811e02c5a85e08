"""Splits a text as a translator does, without a model."""

from types import SimpleNamespace

from vanilla_transformer.inference.engine_choice import Engines
from vanilla_transformer.inference.options import TranslateOptions

NO_MODEL = Engines(SimpleNamespace(problems=lambda search: [], batch_tokens=1024))


def split_by(translator, text, **options):
    """Returns a text in the segments that the model reads."""
    return translator.reader.split(translator.plan([text], TranslateOptions.of(**options)))
