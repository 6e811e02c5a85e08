"""Adds tags and languages to the vocabulary of a saved model.

A new row starts as the mean of the rows of the pieces that the old tokenizer cuts its token into.
Its logit is then the mean of theirs, so that greedy decoding never prefers it before training.
"""

from collections.abc import Sequence
from pathlib import Path

from vanilla_transformer.files.atomic_files import check_output_directory
from vanilla_transformer.interop.trimmed_vocabulary import (
    Rows,
    load_model_and_tokenizer,
    save_changed_model,
    set_rows,
)
from vanilla_transformer.model.directions import in_language
from vanilla_transformer.tokenizer_sides import call_tokenizer


def grow_vocabulary(
    path: str, output_dir: str | Path, tokens: Sequence[str], overwrite: bool = False
) -> None:
    """Adds tokens to the vocabulary of a model, or to both, and saves the model.

    The tokens are tags or languages, which texts contain as a whole, such as "<2fr>". After an
    error, the output directory is as it was.
    """
    check_output_directory(str(output_dir), overwrite, [path])
    model, tokenizer = load_model_and_tokenizer(path)
    plain = in_language(tokenizer, None)
    cuts = {
        side: [
            call_tokenizer(plain, side, token, add_special_tokens=False)["input_ids"]
            or [tokenizer.unk_token_id]
            for token in tokens
        ]
        for side in ("source", "target")
    }
    sizes, rows_of_sides = (model.config.vocab_size, model.config.decoder_vocab_size), list[Rows]()
    for (side, cut), size in zip(cuts.items(), sizes, strict=True):
        at = {"side": side} if getattr(tokenizer, "separate_vocabularies", False) else {}
        if at or side == "source":
            tokenizer.add_tokens(list(tokens), special_tokens=True, **at)
        rows: Rows = [[index] for index in range(size)]
        for token, pieces in zip(tokens, cut, strict=True):
            index = int(tokenizer.convert_tokens_to_ids(token, **at))
            rows += [pieces] * (index + 1 - len(rows))  # or it is a row that no token has used
            rows[index] = pieces
        rows_of_sides.append(rows)
    set_rows(model, *rows_of_sides)
    save_changed_model(
        (model, tokenizer),
        output_dir,
        path,
        "larger",
        f"It has {len(tokens):,} new tokens, whose rows are the means of the pieces that they were "
        "cut into: train it.",
        "Logits of old tokens equal the source's for texts that are cut as before.",
    )
