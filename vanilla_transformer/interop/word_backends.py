"""Backends of tokenizers for vocabularies of words and subwords that are listed by id."""

from collections.abc import Sequence

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors


def word_backend(words: Sequence[str], unk_token: str, suffix: str | None) -> Tokenizer:
    """Makes a backend that splits at white space and looks words up.

    Decoding undoes the segmentation, if the vocabulary shows it: `▁` of SentencePiece, `￭` of
    OpenNMT's tokenizer, or `@@` of subword-nmt.

    Args:
        words: The words by id.
        unk_token: The word that stands for unknown ones.
        suffix: The word that ends each sequence. None: a sequence has no such word.
    """
    vocab = {word: index for index, word in enumerate(words)}
    backend = Tokenizer(models.WordLevel(vocab, unk_token=unk_token))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    end = "" if suffix is None else f" {suffix}"
    backend.post_processor = processors.TemplateProcessing(
        single=f"$A{end}",
        pair=f"$A{end} $B:1{end and end + ':1'}",
        special_tokens=[] if suffix is None else [(suffix, vocab[suffix])],
    )
    backend.decoder = decoders.Sequence(_decoding_steps(words))
    return backend


def _decoding_steps(words: Sequence[str]) -> list[decoders.Decoder]:
    if any(word.startswith("▁") for word in words):
        return [decoders.Fuse(), decoders.Replace("▁", " "), decoders.Strip(" ", 1, 0)]
    # The prefix marks words that continue others. No word begins with a space, so none does.
    steps = [decoders.WordPiece(prefix=" ", cleanup=False), decoders.Fuse()]
    if any("￭" in word for word in words):
        steps.append(decoders.Replace(Regex(" ?￭ ?"), ""))
    elif any(word.endswith("@@") for word in words):
        steps.append(decoders.Replace(Regex("@@( |$)"), ""))
    return steps
