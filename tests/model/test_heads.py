"""The encoder alone and the classifier on it: masks, losses, loading."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers import (
    AutoModel,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTextEncoding,
)

from vanilla_transformer import (
    VanillaTransformerEncoderModel,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerForSequenceClassification,
    VanillaTransformerModel,
)
from vanilla_transformer.model.modeling_vanilla_transformer import first_token, mean_of_tokens

Classifier = VanillaTransformerForSequenceClassification
MODELS = [VanillaTransformerEncoderModel, Classifier]
LAYOUTS = [
    {},
    {"tie_word_embeddings": False},
    {"share_encoder_decoder_embeddings": False},
    {"decoder_vocab_size": 52, "tie_word_embeddings": False, "lm_head_bias": True},
]
SINGLE, MULTI = "single_label_classification", "multi_label_classification"


def source(batch, **changes):
    return {name: batch[name] for name in ("input_ids", "attention_mask")} | changes


def labels_for(batch, num_labels=2):
    return torch.arange(len(batch["input_ids"])) % num_labels


def result(outputs):
    return outputs.get("logits", outputs.get("last_hidden_state"))


# --- what the models compute ---------------------------------------------------------------------


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("cls", MODELS)
def test_a_padded_batch_equals_single_rows(tiny_model, tiny_batch, cls, side):
    pooling = "first" if side == "left" else "mean"
    model = tiny_model(cls=cls, norm_placement="pre", classifier_pooling=pooling)
    batch = source(tiny_batch((7, 4, 1), side=side))
    batched = result(model(**batch))
    for row, (ids, mask) in enumerate(zip(*batch.values(), strict=True)):
        single = result(model(ids[mask == 1][None]))[0]
        found = batched[row] if batched.dim() == 2 else batched[row][mask == 1]
        torch.testing.assert_close(found, single, rtol=0, atol=1e-4)


def test_pooling_takes_real_tokens_only():
    states = torch.tensor([[[1.0], [2.0], [9.0]], [[7.0], [3.0], [5.0]], [[1.0], [1.0], [1.0]]])
    mask = torch.tensor([[1, 1, 0], [0, 1, 1], [0, 0, 0]]).bool()
    assert mean_of_tokens(states, mask).tolist() == [[1.5], [4.0], [0.0]]
    assert first_token(states, mask)[:2].tolist() == [[1.0], [3.0]]
    half = torch.full((1, 4000, 1), 60.0, dtype=torch.float16)
    assert mean_of_tokens(half, torch.ones(1, 4000).bool()).item() == 60


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_a_classifier_is_its_encoder_pooled_and_projected(tiny_model, tiny_batch, pooling):
    model = tiny_model(
        cls=VanillaTransformerForSequenceClassification, classifier_pooling=pooling, num_labels=5
    )
    batch = source(tiny_batch((6, 3)))
    states = model.model(**batch).last_hidden_state
    pooled = [s[: m.sum()].mean(0) if pooling == "mean" else s[0]
              for s, m in zip(states, batch["attention_mask"], strict=True)]  # fmt: skip
    expected = torch.stack(pooled) @ model.classifier.weight.T + model.classifier.bias
    torch.testing.assert_close(model(**batch).logits, expected)
    assert expected.shape == (2, 5)


# --- losses --------------------------------------------------------------------------------------


def test_a_classifiers_loss_is_the_mean_over_its_labels(tiny_model, tiny_batch):
    model = tiny_model(cls=Classifier, num_labels=3, label_smoothing=0.1)
    batch = source(tiny_batch())
    labels = labels_for(batch, num_labels=3)
    labels.view(-1)[1] = -100
    outputs = model(**batch, labels=labels)
    known = labels != -100
    expected = nn.CrossEntropyLoss(label_smoothing=0.1)(outputs.logits[known], labels[known])
    torch.testing.assert_close(outputs.loss, expected)
    assert model(**batch, labels=torch.full_like(labels, -100)).loss == 0


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_numbers_are_regressed_whatever_the_shape_of_their_column(tiny_model, tiny_batch, shape):
    model = tiny_model(cls=VanillaTransformerForSequenceClassification, num_labels=1)
    numbers = torch.tensor([0.5, -2.0, 3.0])
    outputs = model(**source(tiny_batch()), labels=numbers.view(shape))
    torch.testing.assert_close(outputs.loss, F.mse_loss(outputs.logits[:, 0], numbers))
    assert model.config.problem_type == "regression"


def test_several_labels_a_row(tiny_model, tiny_batch):
    model = tiny_model(cls=VanillaTransformerForSequenceClassification, num_labels=3)
    labels = torch.tensor([[1.0, 0, 0], [0, 1, 1], [1, 1, 0]])
    outputs = model(**source(tiny_batch()), labels=labels)
    expected = nn.BCEWithLogitsLoss()(outputs.logits, labels)
    torch.testing.assert_close(outputs.loss, expected)
    assert model.config.problem_type == MULTI
    torch.testing.assert_close(model(**source(tiny_batch()), labels=labels.long()).loss, expected)
    labels[0] = -100
    partly = model(**source(tiny_batch()), labels=labels).loss
    torch.testing.assert_close(partly, nn.BCEWithLogitsLoss()(outputs.logits[1:], labels[1:]))


@pytest.mark.parametrize(
    ("labels", "num_labels", "kind"),
    [
        (torch.tensor([1, 0, 1]), 2, SINGLE),
        (torch.tensor([[1], [0], [1]]), 2, SINGLE),
        (torch.tensor([[1, 0], [0, 1], [1, 1]]), 2, MULTI),
        (torch.tensor([[True, False], [False, True], [True, True]]), 2, MULTI),
        (torch.tensor([1, 0, 1]), 1, "regression"),
    ],
)
def test_the_kind_of_problem_is_told_by_the_labels_and_kept(
    tiny_model, tiny_batch, labels, num_labels, kind
):
    cls = VanillaTransformerForSequenceClassification
    model = tiny_model(cls=cls, num_labels=num_labels)
    assert model(**source(tiny_batch()), labels=labels).loss.isfinite()
    assert model.config.problem_type == kind


# --- saving and loading --------------------------------------------------------------------------


def no_complaints(info, missing=()):
    assert set(info["missing_keys"]) == set(missing)
    assert not info["unexpected_keys"]
    assert not info["mismatched_keys"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_encoder_of_a_whole_model_can_be_lifted_out(tiny_model, tiny_batch, tmp_path, layout):
    whole = tiny_model(**layout, norm_placement="pre", position_embedding_type="learned")
    whole.save_pretrained(tmp_path)
    batch = source(tiny_batch())
    expected = whole.model.encoder(**batch).last_hidden_state
    for cls in MODELS:
        model, info = cls.from_pretrained(tmp_path, output_loading_info=True)
        is_bare = cls is VanillaTransformerEncoderModel
        no_complaints(info, () if is_bare else {"classifier.weight", "classifier.bias"})
        found = model.base_model(**batch).last_hidden_state
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
        assert (model.config.is_encoder_decoder, whole.config.is_encoder_decoder) == (False, True)
        stored = sum(p.numel() for p in model.base_model.parameters())
        assert stored == sum(p.numel() for p in whole.model.encoder.parameters())


@pytest.mark.parametrize("layout", [LAYOUTS[0], LAYOUTS[3]])
@pytest.mark.parametrize("cls", MODELS)
def test_the_vocabulary_can_be_resized(tiny_model, tmp_path, cls, layout):
    model = tiny_model(cls=cls, **layout)
    model.resize_token_embeddings(70)
    model.save_pretrained(tmp_path)
    model, info = cls.from_pretrained(tmp_path, output_loading_info=True)
    no_complaints(info)
    assert model.get_input_embeddings().num_embeddings == model.config.vocab_size == 70
    model.eval()(torch.tensor([[69, 4]]))


def test_a_config_given_is_not_changed(tiny_config):
    config = tiny_config()
    before = copy.deepcopy(config.to_dict())
    for cls in MODELS:
        assert cls(config).config.is_encoder_decoder is False
    assert config.to_dict() == before
    assert VanillaTransformerForConditionalGeneration(config).config is config


@pytest.mark.parametrize(
    ("auto_class", "cls"),
    [
        (AutoModelForTextEncoding, VanillaTransformerEncoderModel),
        (AutoModelForSequenceClassification, VanillaTransformerForSequenceClassification),
    ],
)
def test_the_auto_classes_load_their_own_and_whole_models(tiny_model, tmp_path, auto_class, cls):
    tiny_model(cls=cls).save_pretrained(tmp_path / "own")
    tiny_model().save_pretrained(tmp_path / "whole")
    for name in ("own", "whole"):
        assert type(auto_class.from_pretrained(tmp_path / name)) is cls
    assert type(auto_class.from_config(tiny_model().config)) is cls
    assert type(AutoModel.from_pretrained(tmp_path / "own")) is VanillaTransformerEncoderModel
    whole = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "own").eval()
    assert whole.config.is_encoder_decoder
    assert whole.generate(torch.tensor([[5, 6]]), max_new_tokens=3).shape[0] == 1
    whole.save_pretrained(tmp_path / "again")
    assert type(AutoModel.from_pretrained(tmp_path / "again")) is VanillaTransformerModel
    assert type(AutoModel.from_config(tiny_model().config)) is VanillaTransformerModel


def test_a_whole_model_can_start_from_an_encoder(tiny_model, tiny_batch, tmp_path):
    encoder = tiny_model(cls=VanillaTransformerEncoderModel)
    encoder.save_pretrained(tmp_path)
    whole, info = VanillaTransformerForConditionalGeneration.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert all(name.startswith("model.decoder.layers.") for name in info["missing_keys"])
    batch = source(tiny_batch())
    found = whole.get_encoder()(**batch).last_hidden_state
    torch.testing.assert_close(found, encoder(**batch).last_hidden_state)


STRANGER = """
import transformers
directory, again = sys.argv[1:3]
ids = torch.tensor(json.loads(sys.argv[3]))
found = {}
for name in ("TextEncoding", "SequenceClassification"):
    auto = getattr(transformers, f"AutoModelFor{name}")
    model = auto.from_pretrained(f"{directory}/{name}", trust_remote_code=True)
    model.save_pretrained(f"{again}/{name}")
    model = auto.from_pretrained(f"{again}/{name}", trust_remote_code=True)
    found[name] = [model(ids)[0].sum().item(), type(model).__name__]
    bare = transformers.AutoModel.from_pretrained(f"{again}/{name}", trust_remote_code=True)
    found[name].append(type(bare).__name__)
    auto.from_pretrained(f"{directory}/whole", trust_remote_code=True)
assert "vanilla_transformer" not in sys.modules
print(json.dumps(found))
"""


def test_the_heads_load_where_the_package_is_not_installed(
    tiny_model, tmp_path, load_as_a_stranger
):
    names = ("TextEncoding", "SequenceClassification")
    ids, expected = [[5, 6, 7, 8]], {}
    tiny_model().save_pretrained(tmp_path / "saved" / "whole")
    for name, cls in zip(names, MODELS, strict=True):
        model = tiny_model(cls=cls, norm_placement="pre")
        model.save_pretrained(tmp_path / "saved" / name)
        bare = VanillaTransformerEncoderModel.__name__
        expected[name] = [model(torch.tensor(ids))[0].sum().item(), cls.__name__, bare]
    found = load_as_a_stranger(tmp_path / "saved", tmp_path / "again", ids, program=STRANGER)
    for name in names:
        assert found[name][0] == pytest.approx(expected[name][0], abs=1e-3)
        assert found[name][1:] == expected[name][1:]
