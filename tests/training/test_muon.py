"""Muon: its steps, the parameters it updates, and runs with it."""

import copy
from functools import partial

import pytest
import torch
from tiny_training import assert_resumes_exactly, model, trainer
from torch import nn

from vanilla_transformer.model.initialization import StackedLinear
from vanilla_transformer.training.muon import Muon, layer_matrices, make_muon, orthogonalize
from vanilla_transformer.training.schedules import NoamSchedule, noam_rate

OPTIONS = {"optim": "muon", "learning_rate": 0.003, "muon_learning_rate": 0.02}
BOTH_TYPES = pytest.mark.parametrize("exact", [True, False], ids=["float32", "bfloat16"])


def choose_type(monkeypatch, exact):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: not exact)


def matrices(*shapes):
    return [nn.Parameter(torch.randn(shape)) for shape in shapes]


def give_gradients(parameters, seed):
    generator = torch.Generator().manual_seed(seed)
    for one in parameters:
        one.grad = torch.randn(one.shape, generator=generator)


def muon_group(parameters, **changes):
    settings = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.3, "part_sizes": None}
    return {"params": parameters, "algorithm": "muon", **settings, **changes}


@BOTH_TYPES
@pytest.mark.parametrize("shape", [(5, 8, 8), (4, 6, 20), (4, 20, 6), (1, 1, 9)])
def test_the_singular_values_become_one(monkeypatch, exact, shape):
    choose_type(monkeypatch, exact)
    torch.manual_seed(0)
    given = torch.randn(shape)
    if shape[1] > shape[2]:
        given = torch.linalg.qr(given)[0] * 7.0
    left, values, right = torch.linalg.svd(given, full_matrices=False)
    found = orthogonalize(given).float()
    mixed = left.mT @ found @ right.mT
    assert found.dtype == torch.float32
    clear = values > 0.1 * values[:, :1]
    assert torch.all((mixed.diagonal(dim1=1, dim2=2)[clear] - 1).abs() < 0.36)
    off = mixed - torch.diag_embed(mixed.diagonal(dim1=1, dim2=2))
    assert off.abs().max() < (1e-4 if exact else 0.06)


@BOTH_TYPES
def test_its_steps_are_those_of_torch(monkeypatch, exact):
    choose_type(monkeypatch, exact)
    torch.manual_seed(0)
    shapes = [(8, 8), (6, 20), (20, 6), (8, 8), (1, 4), (6, 20)]
    own = matrices(*shapes)
    theirs = copy.deepcopy(own)
    one = Muon([muon_group(own)], lr=1.0)
    other = torch.optim.Muon(theirs, lr=0.1, momentum=0.9, weight_decay=0.3)
    for seed in range(3):
        give_gradients(own, seed)
        give_gradients(theirs, seed)
        one.step()
        other.step()
    for mine, reference in zip(own, theirs, strict=True):
        buffer = other.state[reference]["momentum_buffer"]
        torch.testing.assert_close(one.state[mine]["momentum_buffer"], buffer, rtol=0, atol=0)
        difference = (mine - reference).norm() / (0.3 * max(mine.shape) ** 0.5)
        assert difference < 0.03, mine.shape


def test_parts_of_a_stack_are_matrices_of_their_own(monkeypatch):
    choose_type(monkeypatch, exact=True)
    torch.manual_seed(0)
    parts = matrices((8, 8), (4, 8), (4, 8))
    stacked = nn.Parameter(torch.cat(list(parts)).detach().clone())
    give_gradients(parts, 0)
    stacked.grad = torch.cat([part.grad for part in parts])
    Muon([muon_group(parts)], lr=1.0).step()
    Muon([muon_group([stacked], part_sizes=(8, 4, 4))], lr=1.0).step()
    torch.testing.assert_close(stacked.data, torch.cat(list(parts)).data)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_all_else_has_the_steps_of_adamw_to_the_bit(weight_decay):
    torch.manual_seed(0)
    net = nn.ModuleDict({"layers": nn.ModuleList([nn.Linear(4, 4)]), "out": nn.Linear(4, 3)})
    optimizer = make_muon(net, lr=0.01, betas=(0.8, 0.9), eps=1e-6, weight_decay=weight_decay)
    twin = copy.deepcopy(net)
    decayed = [{"params": [twin["out"].weight], "weight_decay": weight_decay}]
    plain = [{"params": [twin["layers"][0].bias, twin["out"].bias], "weight_decay": 0.0}]
    reference = torch.optim.AdamW(decayed + plain, 0.01, (0.8, 0.9), 1e-6, fused=True)
    for seed in range(4):
        for found in (net, twin):
            give_gradients(found.parameters(), seed)
        optimizer.step()
        reference.step()
    for name in ("layers.0.bias", "out.weight", "out.bias"):
        assert torch.equal(net.get_parameter(name), twin.get_parameter(name)), name


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_word_embeddings": False},
        {"fused_qkv": True, "decoder_num_key_value_heads": 1},
        {"gated_ffn": True, "position_embedding_type": "relative", "norm_type": "rms_norm"},
        {"position_embedding_type": "learned", "lm_head_bias": True, "norm_placement": "pre"},
    ],
)
def test_it_updates_the_matrices_of_the_layers_and_no_others(changes):
    net = model(**changes)
    optimizer = make_muon(net)
    names = {id(one): name for name, one in net.named_parameters()}
    groups = {"muon": [], "adamw": []}
    for group in optimizer.param_groups:
        groups[group["algorithm"]] += [names[id(one)] for one in group["params"]]
    assert sorted(groups["muon"] + groups["adamw"]) == sorted(names.values())
    for name, one in net.named_parameters():
        in_layer = ".layers." in name and one.ndim == 2
        assert (name in groups["muon"]) is in_layer, name
    stacked = {
        f"{name}.weight": module.part_sizes
        for name, module in net.named_modules()
        if isinstance(module, StackedLinear)
    }
    found = {name: parts for name, parts in layer_matrices(net).items() if parts}
    assert found == stacked
    assert bool(stacked) is ("fused_qkv" in changes)


# Runs --------------------------------------------------------------------------------------------


def run(folder, **options):
    given = {"max_steps": 6, "logging_steps": 1, "save_strategy": "steps", "save_steps": 2}
    return trainer(folder, net=model(dropout=0.3), **{**given, **OPTIONS, **options})


def rates_of(optimizer):
    return {group["algorithm"]: group["lr"] for group in optimizer.param_groups}


@pytest.mark.parametrize(
    "options",
    [
        {"gradient_accumulation_steps": 2, "weight_decay": 0.1},
        {"bf16": True, "max_tokens": 60},
        {"lr_scheduler_type": "reduce_lr_on_plateau", "eval_strategy": "steps", "eval_steps": 1},
    ],
    ids=["accumulation", "bf16", "plateau"],
)
def test_a_resumed_run_ends_with_the_same_bits(tmp_path, options):
    assert_resumes_exactly(partial(run, **options), tmp_path, 4)


def test_a_run_makes_the_groups_that_trainer_makes(tmp_path):
    started = run(tmp_path, weight_decay=0.1, adam_beta2=0.98)
    groups = started.create_optimizer().param_groups
    adamw = [group for group in groups if group["algorithm"] == "adamw"]
    assert [(group["lr"], group["betas"]) for group in adamw] == [(0.003, (0.9, 0.98))] * 2
    decayed = set(started.get_decay_parameter_names(started.model))
    names = {id(one): name for name, one in started.model.named_parameters()}
    for group in groups:
        for one in group["params"]:
            assert (group["weight_decay"] == 0.1) is (names[id(one)] in decayed)
    assert started.create_optimizer() is started.optimizer


def test_with_the_papers_schedule_its_rate_is_that_at_the_end_of_the_warm_up():
    optimizer = make_muon(model(), muon_lr=0.04)
    schedule = NoamSchedule(optimizer, d_model=16, warmup_steps=4)
    for step in range(1, 20):
        found = rates_of(optimizer)
        rate = noam_rate(step, 16, 4)
        assert found["adamw"] == pytest.approx(rate)
        assert found["muon"] == pytest.approx(0.04 * rate / noam_rate(4, 16, 4))
        optimizer.step()
        schedule.step()
