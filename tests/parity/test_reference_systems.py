"""Five tutorials' systems run here: same outputs, gradients, generation and dropout."""

import pytest
import torch
import torch.nn.functional as F
from reference_systems import SystemA, SystemB, SystemC, SystemD, SystemE
from tiny_models import add_noise

from vanilla_transformer import VanillaTransformerForConditionalGeneration, VanillaTransformerModel
from vanilla_transformer.interop.tutorials import convert_tutorial

SIZES = {"source": 23, "target": 29, "d_model": 16, "heads": 4, "inner": 24, "layers": 2}
TRANSLATORS = {"a": SystemA, "c": SystemC, "d": SystemD, "e": SystemE}
# The description of C does not fix the ids of START, PADDING and END.
TOKENS = {"c": {"pad_token_id": 1, "decoder_start_token_id": 0, "eos_token_id": 2}}


def random_weights(system):
    """A system with random values in every parameter, so that a misplaced norm or bias shows."""
    torch.manual_seed(0)
    noise = 0.02 if system is SystemE else 0.2  # without norms, hidden states grow with each layer
    return add_noise(system(SIZES), noise)


def converted(letter, **changes):
    reference = random_weights(TRANSLATORS[letter])
    fields = {**TOKENS.get(letter, {}), **changes}
    config, weights = convert_tutorial(
        f"system-{letter}", reference.state_dict(), SIZES["heads"], **fields
    )
    model = VanillaTransformerForConditionalGeneration(config)
    model.load_state_dict(weights)
    return reference.eval(), model.eval()


def padded_ids(lengths, vocab, pad, seed):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.full((len(lengths), max(lengths)), pad)
    for row, length in enumerate(lengths):
        ids[row, :length] = torch.randint(3, vocab, (length,), generator=generator)
    return ids


def padded_batch(pad):
    source = padded_ids((7, 4, 6), SIZES["source"], pad, seed=1)
    return source, padded_ids((5, 6, 3), SIZES["target"], pad, seed=2)


def scores_of(letter, reference, source, target, pad):
    """Log-probabilities for E, logits for the other systems."""
    output = reference(source, target, pad)
    return output[0] if letter == "e" else output


def our_scores(letter, model, source, target):
    pad = model.config.pad_token_id
    masks = {"attention_mask": (source != pad).long()}
    if letter in "ce":
        masks["decoder_attention_mask"] = (target != pad).long()
    logits = model(input_ids=source, decoder_input_ids=target, **masks).logits
    return logits.log_softmax(-1) if letter == "e" else logits


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("letter", list(TRANSLATORS))
def test_logits_and_gradients_are_those_of_the_system(letter, attention):
    reference, model = converted(letter)
    model.set_attn_implementation(attention)
    pad = model.config.pad_token_id
    source, target = padded_batch(pad)
    theirs = scores_of(letter, reference, source, target, pad)
    ours = our_scores(letter, model, source, target)
    real = torch.ones_like(target, dtype=torch.bool) if letter in "ad" else target != pad
    torch.testing.assert_close(ours[real], theirs[real], rtol=1e-5, atol=1e-5)

    weights = torch.randn_like(theirs)[target != pad]
    for scores in (theirs, ours):
        (scores[target != pad] * weights).sum().backward()
    gradients = {name: parameter.grad for name, parameter in reference.named_parameters()}
    _, expected = convert_tutorial(
        f"system-{letter}", gradients, SIZES["heads"], **TOKENS.get(letter, {})
    )
    assert dict(model.named_parameters()).keys() == expected.keys()
    assert_gradients(model, expected)


def assert_gradients(model, expected):
    found = dict(model.named_parameters())
    largest = max(gradient.abs().max() for gradient in expected.values())
    for name, gradient in expected.items():
        torch.testing.assert_close(
            found[name].grad / largest, gradient / largest, rtol=1e-4, atol=1e-6,
            msg=lambda m, n=name: f"{n}: {m}",
        )  # fmt: skip


@pytest.mark.parametrize("letter", list(TRANSLATORS))
def test_greedy_generation_is_the_loop_of_the_system(letter):
    reference, model = converted(letter)
    config = model.config
    source, _ = padded_batch(config.pad_token_id)
    found = model.generate(
        source, attention_mask=(source != config.pad_token_id).long(), max_new_tokens=8
    )
    for row, tokens in zip(source, found.tolist(), strict=True):
        ids, alone = [config.decoder_start_token_id], row[row != config.pad_token_id][None]
        while len(ids) < 9 and ids[-1] != config.eos_token_id:
            target = torch.tensor([ids])
            scores = scores_of(letter, reference, alone, target, config.pad_token_id)
            if letter in "ce":  # these mask every padding token, also a generated one
                scores = scores_of(letter, reference, alone, target, pad=-1)
            ids.append(int(scores[0, -1].argmax()))
        assert tokens[: len(ids)] == ids
        assert set(tokens[len(ids) :]) <= {config.pad_token_id}


# --- B, an encoder without a decoder ------------------------------------------------------------


def converted_encoder():
    reference = random_weights(SystemB)
    config, weights = convert_tutorial("system-b", reference.state_dict(), SIZES["heads"])
    model = VanillaTransformerModel(config)
    assert model.load_state_dict(weights, strict=False).unexpected_keys == []
    return reference.eval(), model.eval()


def embedded():
    x = torch.randn(3, 7, SIZES["d_model"], generator=torch.Generator().manual_seed(3))
    return x, torch.tensor([[1] * 7, [1] * 4 + [0] * 3, [1] * 6 + [0]])


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_states_and_gradients_are_those_of_the_encoder(attention):
    reference, model = converted_encoder()
    model.set_attn_implementation(attention)
    x, mask = embedded()
    additive = torch.zeros(3, 1, 1, 7).masked_fill(mask[:, None, None] == 0, -1e9)
    theirs = reference(x, additive)
    ours = model.encoder(inputs_embeds=x, attention_mask=mask).last_hidden_state
    assert ours.shape == x.shape
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)

    weights = torch.randn_like(theirs)
    for states in (theirs, ours):
        (states * weights).sum().backward()
    gradients = {name: parameter.grad for name, parameter in reference.named_parameters()}
    _, expected = convert_tutorial("system-b", gradients, SIZES["heads"])
    assert_gradients(model, expected)


# --- dropout ------------------------------------------------------------------------------------


def record_dropouts(run, monkeypatch):
    """Shape and probability of every dropout, in the order of the calls."""
    recorded, original = [], F.dropout

    def record(input, p=0.5, training=True, inplace=False):
        if training and p:
            recorded.append((tuple(input.shape), p))
        return original(input, p, training, inplace)

    with monkeypatch.context() as patch:
        patch.setattr(F, "dropout", record)
        patch.setattr("vanilla_transformer.model.dropout.dropout", record)
        patch.setattr("vanilla_transformer.model.attention_functions.drop_out", record)
        run()
    return recorded


@pytest.mark.parametrize("letter", list(TRANSLATORS))
def test_dropout_acts_where_the_system_has_it(letter, monkeypatch):
    reference, model = converted(letter)
    model.set_attn_implementation("eager")
    source, target = padded_batch(model.config.pad_token_id)
    theirs = record_dropouts(lambda: reference.train()(source, target, 0), monkeypatch)
    ours = record_dropouts(lambda: our_scores(letter, model.train(), source, target), monkeypatch)
    assert ours == theirs
    assert bool(ours) == (letter != "e")


def test_dropout_acts_inside_the_feed_forward_of_the_encoder(monkeypatch):
    reference, model = converted_encoder()
    x, _ = embedded()
    theirs = record_dropouts(lambda: reference.train()(x, torch.zeros(1)), monkeypatch)
    ours = record_dropouts(lambda: model.train().encoder(inputs_embeds=x), monkeypatch)
    assert ours == theirs == [((3, 7, SIZES["inner"]), 0.1)] * 2
